"""The PostgreSQL of the tests starts wherever the clone and its virtual environment lie."""

from __future__ import annotations

import shutil
from pathlib import Path

import psycopg

from tests.support.postgres import Server, bundled_binaries


def test_it_starts_from_a_home_that_only_its_owner_may_enter(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    package = bundled_binaries().parent
    for folder in (package, package.with_name(f"{package.name}.libs")):
        shutil.copytree(folder, home / folder.name, symlinks=True)

    server = Server(programs=home / package.name / bundled_binaries().name).start()
    try:
        with psycopg.connect(server.url()) as conn:
            assert conn.execute("SELECT 1").fetchone() == (1,)
    finally:
        server.remove()
