"""A command that hunts for the secrets of the processes above it, in everything that /proc shows of them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import pytest

from penstock import Penstock
from penstock.core.nouns import Run
from penstock.queue.access import create_token
from penstock.run.shield import handed_over, receive, secret_spans

linux_only = pytest.mark.skipif(sys.platform != "linux", reason="there is no /proc elsewhere")
root_only = pytest.mark.skipif(os.geteuid() != 0, reason="only root may start programs as another user")

HUNT = """
for d in /proc/[0-9]*; do
  for f in environ cmdline; do
    grep -aqs '{pattern}' "$d/$f" && echo "FOUND $d/$f"
  done
done
p=$$
while [ "$p" -gt 1 ]; do
  while read -r k v; do
    [ "$k" = PPid: ] && q=$v
  done < "/proc/$p/status"
  p=$q
  for l in /proc/$p/fd/*; do
    [ -f "$l" ] && grep -aqs '{pattern}' "$l" && echo "FOUND $l"
  done
done
echo "hunted as $(id -u) $(id -g) $(id -G) in $(pwd) $(ls -a)"
"""
"""The last letter of the secret is a class of one, so that the hunt does not find itself."""


class Prey:
    """A service with secrets, and the commands file that it runs."""

    def __init__(self, url: str, folder: Path, user: str | None) -> None:
        self.secret = f"S3cret-{uuid4().hex}x"
        self.folder = folder
        scheme, _, rest = url.partition("://")
        self.url = url if scheme == "sqlite" else f"{scheme}://{rest.replace('@', f':{self.secret}@', 1)}"
        if scheme != "sqlite":
            assert self.secret in self.url
        script = HUNT.replace("{pattern}", f"{self.secret[:-1]}[x]")
        lines = ["[commands.hunt]", f'argv = ["/bin/sh", "-c", {json.dumps(script)}]', 'env = ["PATH"]']
        lines += [f'user = "{user}"'] if user else []
        self.commands = folder / "commands.toml"
        self.commands.write_text("\n".join(lines))

    @property
    def variables(self) -> dict[str, str]:
        return {
            **os.environ,
            "PENSTOCK_BOOTSTRAP_TOKEN": self.secret,
            "PGPASSWORD": self.secret,
            "STRIPE_API_KEY": self.secret,
            "HOME": f"https://me:{self.secret}@host/",
        }

    @contextmanager
    def runs(self, *arguments: str, **more: str) -> Iterator[None]:
        log = self.folder / f"{uuid4().hex}.log"
        with log.open("wb") as told:
            process = subprocess.Popen(
                [sys.executable, "-m", "penstock.cli", *arguments],
                env={**self.variables, **more},
                stdout=told,
                stderr=told,
                cwd=self.folder,
            )
        try:
            yield
        except BaseException:
            sys.stderr.write(log.read_text())
            raise
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(120)
        assert self.secret not in log.read_text()


def hunted(app: Penstock) -> Run:
    """Enqueue the hunt, and return its run when it has ended."""
    app.define("hunt", runner="command", arg_schema={}, max_attempts=1)
    job = app.enqueue("hunt")
    until = time.monotonic() + 120
    while not app.jobs.get(job.id).finished:
        assert time.monotonic() < until, "the hunt did not end"
        time.sleep(0.05)
    [run] = app.jobs.runs(job.id)
    return run


def assert_nothing_found(run: Run) -> None:
    told = (run.stdout_tail or "") + (run.stderr_tail or "")
    assert "hunted as" in told, run
    assert "FOUND" not in told


@pytest.fixture(params=["root", pytest.param("nobody", marks=root_only)])
def prey(request: pytest.FixtureRequest, url: str, tmp_path: Path) -> Prey:
    return Prey(url, tmp_path, None if request.param == "root" else request.param)


@linux_only
def test_under_up(prey: Prey, url: str) -> None:
    given = ("up", "--port", "0", "--commands", str(prey.commands))
    with prey.runs(*given, PENSTOCK_DATABASE_URL=prey.url), Penstock(url) as app:
        assert_nothing_found(hunted(app))


@linux_only
def test_under_a_worker_whose_url_is_an_argument(prey: Prey, url: str) -> None:
    given = ("worker", "--commands", str(prey.commands), "--database-url", prey.url)
    with prey.runs(*given), Penstock(url) as app:
        assert_nothing_found(hunted(app))


@linux_only
@pytest.mark.parametrize("backend", ["sqlite"])
def test_under_supervised_workers(prey: Prey, url: str) -> None:
    given = ("worker", "--commands", str(prey.commands), f"--database-url={prey.url}", "--processes", "2")
    with prey.runs(*given), Penstock(url) as app:
        assert_nothing_found(hunted(app))


@linux_only
@pytest.mark.parametrize("backend", ["sqlite"])
def test_under_a_worker_without_a_database(url: str, tmp_path: Path) -> None:
    prey = Prey(url, tmp_path, None)
    with Penstock(url) as app:
        _, prey.secret = create_token(app.ground, "worker", "hunter", "default")
        script = HUNT.replace("{pattern}", f"{prey.secret[:-1]}[{prey.secret[-1]}]")
        prey.commands.write_text(f'[commands.hunt]\nargv = ["/bin/sh", "-c", {json.dumps(script)}]\nenv = ["PATH"]\n')
        api = ("api", "--port", "0", "--database-url", url)
        address = tmp_path / "api.log"
        with address.open("wb") as told:
            service = subprocess.Popen([sys.executable, "-m", "penstock.cli", *api], stdout=told, stderr=told)
        try:
            until = time.monotonic() + 60
            while "API is at" not in address.read_text():
                assert time.monotonic() < until and service.poll() is None, address.read_text()
                time.sleep(0.05)
            base = address.read_text().partition("API is at ")[2].split("/api")[0]
            given = ("worker", "--commands", str(prey.commands), "--api", base, "--token", prey.secret)
            with prey.runs(*given):
                assert_nothing_found(hunted(app))
        finally:
            service.send_signal(signal.SIGTERM)
            service.wait(60)


@linux_only
@root_only
@pytest.mark.parametrize("backend", ["sqlite"])
@pytest.mark.parametrize("contained", [False, True])
def test_a_command_runs_as_its_user_alone(url: str, tmp_path: Path, contained: bool) -> None:
    prey = Prey(url, tmp_path, "nobody")
    prey.commands.write_text(prey.commands.read_text() + ('\ncontained = true\nstdin = "params"' if contained else ""))
    with prey.runs("worker", "--commands", str(prey.commands), PENSTOCK_DATABASE_URL=url), Penstock(url) as app:
        run = hunted(app)
    told = run.stdout_tail or ""
    assert "hunted as 65534 65534 65534 in /" in told, run
    assert told.split()[-2:] == [".", ".."], "its directory is its own, and empty"


@linux_only
@root_only
@pytest.mark.parametrize("backend", ["sqlite"])
def test_a_params_file_belongs_to_the_user_of_the_command(url: str, tmp_path: Path) -> None:
    commands = tmp_path / "commands.toml"
    script = 'cat "$1"; stat -c "%U %a" "$1"'
    commands.write_text(
        f'[commands.hunt]\nargv = ["/bin/sh", "-c", {json.dumps(script)}, "sh", "{{params_file}}"]\nuser = "nobody"\n'
    )
    with Penstock(url) as app:
        app.define("hunt", runner="command")
        worker = app.worker(1, commands=commands).start()
        try:
            run = hunted(app)
        finally:
            worker.stop()
    assert (run.stdout_tail or "").splitlines() == ["{}nobody 600"], run


def test_secrets_among_arguments_are_found() -> None:
    block = b"penstock\0worker\0--token\0abc\0--token=def\0--database-url\0postgresql://me:pw@host/x\0-c\x001\0"
    found = [block[first:last] for first, last in secret_spans(block)]
    assert found == [b"abc", b"def", b"pw"]


@linux_only
def test_what_is_handed_over_is_received_once(monkeypatch: pytest.MonkeyPatch) -> None:
    with handed_over({"PATH": "/bin", "API_KEY": "s3cr3t \udcff", "HOME": "http://a:pw-of-a@h"}) as (shown, handles):
        assert set(shown) == {"PATH", "PENSTOCK_HANDED_FD"} and len(handles) == 1
        monkeypatch.setenv("PENSTOCK_HANDED_FD", str(os.dup(handles[0])))
        monkeypatch.setenv("API_KEY", "")
        monkeypatch.setenv("HOME", os.environ["HOME"])
        receive()
    assert os.environ["API_KEY"] == "s3cr3t \udcff" and os.environ["HOME"] == "http://a:pw-of-a@h"
    assert "PENSTOCK_HANDED_FD" not in os.environ
