"""A running Penstock for the browser: `penstock up` as a process of its own, and a way to talk to its API."""

from __future__ import annotations

import itertools
import os
import queue
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import httpx

from tests.support.ports import free_port

ROOT = Path(__file__).parent.parent.parent
SECRET = "browser-tests-super-admin-token-0001"
PATIENCE = 60.0
_names = itertools.count(1)


class Site:
    """`penstock up` on a database, with the jobs of `tests.browser.world`."""

    def __init__(self, database_url: str, port: int | None = None, **settings: str) -> None:
        self.database_url = database_url
        self.address = f"http://127.0.0.1:{port or free_port()}"
        self.lines: list[str] = []
        told: queue.Queue[str | None] = queue.Queue()
        self.environment = environment = {
            **os.environ,
            "PENSTOCK_DATABASE_URL": database_url,
            "PENSTOCK_BOOTSTRAP_TOKEN": SECRET,
            "PENSTOCK_STREAM_INTERVAL": "0.3",
            "PYTHONPATH": str(ROOT),
            **{f"PENSTOCK_{name.upper()}": value for name, value in settings.items()},
        }
        command = [
            sys.executable, "-m", "penstock.cli", "up", "--port", self.address.rsplit(":", 1)[1],
            "--app", "tests.browser.world:app", "--pipeline", "tests.browser.lab",
        ]  # fmt: skip
        self.process = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        self._reader = threading.Thread(target=self._read, args=(told,), daemon=True)
        self._reader.start()
        self.link = self._wait_for_link(told)

    def _read(self, told: queue.Queue[str | None]) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line)
            told.put(line)
        told.put(None)

    def _wait_for_link(self, told: queue.Queue[str | None]) -> str:
        end = time.monotonic() + PATIENCE
        while (left := end - time.monotonic()) > 0:
            line = told.get(timeout=left)
            assert line is not None, f"penstock up ended:\n{''.join(self.lines)}"
            if line.startswith("Sign in: "):
                return line.removeprefix("Sign in: ").strip()
        raise AssertionError("penstock up did not come up in time")

    def stop(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(120)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self._reader.join(10)
        assert self.process.stdout is not None
        self.process.stdout.close()

    def api(self, token: str = SECRET, tenant: str | None = None) -> Api:
        return Api(self, token, tenant)

    def tenant(self, name: str = "shop", role: str = "tenant_admin", timezone: str = "UTC") -> Tenant:
        """A tenant of its own for each test, so that tests share a server and nothing else."""
        slug = f"{name}-{next(_names)}"
        admin = self.api()
        admin.post("/admin/tenants", {"slug": slug, "name": name.title(), "timezone": timezone})
        return Tenant(self, slug, self.token(slug, role))

    def token(self, slug: str, role: str) -> str:
        body = {"tenant": slug, "role": role, "label": f"{role} of {slug}"}
        return str(self.api().post("/admin/tokens", body)["token"])


class Api:
    """The API by one token."""

    def __init__(self, site: Site, token: str, tenant: str | None) -> None:
        headers = {"authorization": f"Bearer {token}", **({"x-tenant": tenant} if tenant else {})}
        self._client = {"base_url": f"{site.address}/api/v1", "headers": headers, "timeout": 30.0}

    def _ask(self, method: str, path: str, **rest: Any) -> Any:
        with httpx.Client(**self._client) as client:  # type: ignore[arg-type]
            answer = client.request(method, path, **rest)
        assert answer.is_success, f"{method} {path}: {answer.status_code} {answer.text}"
        return answer.json() if answer.content else None

    def get(self, path: str, **params: Any) -> Any:
        return self._ask("GET", path, params=params)

    def post(self, path: str, body: Any = None) -> Any:
        return self._ask("POST", path, json={} if body is None else body)

    def enqueue(self, key: str, payload: dict[str, Any] | None = None, **more: Any) -> str:
        return str(self.post("/jobs", {"definition_key": key, "payload": payload or {}, **more})["id"])

    def wait(self, job_id: str, *statuses: str) -> dict[str, Any]:
        """The job, once it is in one of these states."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            found: dict[str, Any] = self.get(f"/jobs/{job_id}")
            if found["status"] in statuses:
                return found
            time.sleep(0.05)
        raise AssertionError(f"job {job_id} is {found['status']}; expected {statuses}")


class Tenant:
    """One test's own corner of the installation."""

    def __init__(self, site: Site, slug: str, token: str) -> None:
        self.site = site
        self.slug = slug
        self.token = token
        self.api = site.api(token)

    def address(self, path: str) -> str:
        return f"{self.site.address}/t/{self.slug}/{path}"
