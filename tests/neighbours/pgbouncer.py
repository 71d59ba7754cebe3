"""A real PgBouncer on loopback, in front of one PostgreSQL: what `make neighbours` installs, run as an ordinary user."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

import psycopg

from tests.support.ports import free_port
from tests.support.postgres import NOBODY, Server

PROGRAM = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin")


class PgBouncer:
    """A pooler for every database of the server behind it."""

    def __init__(self, target: int, *, mode: str = "transaction", pool_size: int = 12) -> None:
        if PROGRAM is None:
            raise RuntimeError("pgbouncer is not installed. Run: make neighbours")
        self.directory = Path(tempfile.mkdtemp(prefix="penstock-pgbouncer-"))
        self.port = free_port()
        self.log = self.directory / "log"
        user = NOBODY if os.geteuid() == 0 else None  # it refuses to run as root
        if user is not None:
            shutil.chown(self.directory, user)
        (self.directory / "users.txt").write_text('"postgres" ""\n')
        (self.directory / "pgbouncer.ini").write_text(
            f"""[databases]
* = host=127.0.0.1 port={target}
[pgbouncer]
listen_addr = 127.0.0.1
so_reuseport = 0
listen_port = {self.port}
unix_socket_dir =
auth_type = trust
auth_file = {self.directory}/users.txt
admin_users = postgres
pool_mode = {mode}
default_pool_size = {pool_size}
max_client_conn = 500
server_idle_timeout = 5
query_wait_timeout = 20
"""
        )
        self._user = user
        self._start()

    def _start(self) -> None:
        assert PROGRAM is not None
        with self.log.open("ab") as output:
            self._process = subprocess.Popen(
                [PROGRAM, str(self.directory / "pgbouncer.ini")], user=self._user, stdout=output, stderr=output, cwd="/"
            )
        self._wait()

    def restart(self) -> None:
        """As after a crash: every connection is gone."""
        self._process.kill()
        self._process.wait(120)
        self._start()

    def _wait(self) -> None:
        until = time.monotonic() + 30
        while True:
            try:
                psycopg.connect(self.url("pgbouncer"), autocommit=True).close()
                return
            except psycopg.OperationalError as error:
                if self._process.poll() is not None or time.monotonic() > until:
                    raise RuntimeError(f"pgbouncer did not start:\n{self.log.read_text()}") from error
                time.sleep(0.05)

    def url(self, database: str) -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/{database}"

    def stop(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(120)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(120)
        shutil.rmtree(self.directory, ignore_errors=True)


class PooledServer:
    """A PostgreSQL that is reached through a PgBouncer. Databases come and go directly: the pooler would hold on to them."""

    def __init__(self, direct: Server, *, mode: str = "transaction") -> None:
        self.direct = direct
        self.pooler = PgBouncer(direct.port, mode=mode)

    def url(self, database: str = "postgres") -> str:
        return self.pooler.url(database)

    def execute(self, statement: str) -> None:
        self.direct.execute(statement)

    def create_database(self, template: str = "template1") -> str:
        return self.direct.create_database(template)

    def drop_database(self, name: str) -> None:
        self.direct.drop_database(name)

    def remove(self) -> None:
        self.pooler.stop()
        self.direct.remove()
