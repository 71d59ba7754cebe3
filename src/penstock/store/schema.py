"""Migrations are Alembic's, on both databases. A fresh schema equals the sum of the migrations; a test holds it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import Connection, text
from sqlalchemy.exc import DBAPIError

from penstock.core.errors import DatabaseUnavailable, SchemaOutdated, SchemaTooNew
from penstock.store.database import Database
from penstock.store.dialects.postgresql import GATE_LOCK
from penstock.store.tables import metadata
from penstock.store.types import from_micros

if TYPE_CHECKING:
    from alembic.script import ScriptDirectory

VERSION_TABLE = "penstock_version"
HEAD = "0001"


def current(db: Database) -> str | None:
    """The revision the database is at, or None if Penstock's tables are not there."""
    with db.read() as tx:
        try:
            version: str | None = tx.scalar(text(f"SELECT version_num FROM {VERSION_TABLE}"))
        except DBAPIError as error:
            if "no such table" in str(error.orig) or getattr(error.orig, "sqlstate", None) == "42P01":
                return None
            raise
        return version


def check(db: Database) -> None:
    """Raise unless the tables are exactly those this program knows."""
    found = current(db)
    if found == HEAD:
        return
    if found is None:
        raise SchemaOutdated("Penstock's tables are not there. Run: penstock db upgrade")
    if found not in {script.revision for script in _scripts().walk_revisions()}:
        raise SchemaTooNew(
            f"The database is at schema {found}, which this Penstock (schema {HEAD}) does not know: it was written by a newer "
            "release. Upgrade the program; the database was not touched."
        )
    raise SchemaOutdated(f"The database is at schema {found}; this Penstock needs {HEAD}. Run: penstock db upgrade")


def upgrade(db: Database) -> tuple[str | None, str]:
    """Bring the tables up to date; many processes may call it at once. Answers the revisions before and after."""
    before = current(db)
    if before == HEAD:
        return before, HEAD
    if before is not None:
        try:
            check(db)
        except SchemaOutdated:
            pass
    with db.write() as tx:
        if db.name == "postgresql":
            tx.run(text("SELECT pg_advisory_xact_lock(:key)"), {"key": GATE_LOCK + 1})
        _migrate(tx.conn)
    return before, HEAD


def open_embedded(db: Database) -> None:
    """SQLite migrates itself on open; PostgreSQL is migrated by its operator. Both are checked."""
    if db.name == "sqlite":
        _refuse_network_file_system(db)
        if current(db) != HEAD:
            upgrade(db)
        with db.read() as tx:
            latest = tx.scalar(text("SELECT latest FROM penstock_clock"))
        if latest is not None and db.clock is None:
            db.dialect.not_before(from_micros(latest))
    check(db)


def _scripts() -> ScriptDirectory:
    # Alembic is needed to migrate, not to run: a worker that finds its tables in order never loads it.
    from alembic.config import Config
    from alembic.script import ScriptDirectory

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
    config.set_main_option("path_separator", "os")
    return ScriptDirectory.from_config(config)


def _migrate(conn: Connection) -> None:
    from alembic.config import Config
    from alembic.runtime.environment import EnvironmentContext

    scripts = _scripts()

    def steps(revision: object, _context: object) -> object:
        return scripts._upgrade_revs("head", revision)  # type: ignore[arg-type]

    with EnvironmentContext(Config(), scripts, fn=steps) as environment:
        environment.configure(
            connection=conn, target_metadata=metadata, version_table=VERSION_TABLE, transactional_ddl=True,
            transaction_per_migration=False,
        )  # fmt: skip
        environment.run_migrations()


NETWORK_FILE_SYSTEMS = {"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "fuse.sshfs", "glusterfs", "ceph"}


def _refuse_network_file_system(db: Database) -> None:
    """SQLite's locks do not hold across a network file system: two machines would corrupt the file."""
    path = db.url.database
    if not path or path == ":memory:":
        return
    target = str(Path(path).resolve())
    try:
        mounts = Path("/proc/mounts").read_text().splitlines()
    except OSError:
        return
    best = ("", "")
    for line in mounts:
        fields = line.split()
        if (
            len(fields) > 2
            and (target == fields[1] or target.startswith(fields[1].rstrip("/") + "/"))
            and len(fields[1]) >= len(best[0])
        ):
            best = (fields[1], fields[2])
    if best[1] in NETWORK_FILE_SYSTEMS:
        raise DatabaseUnavailable(
            f"{path} is on a network file system ({best[1]}), where SQLite's locks do not hold. Use a local disk, or PostgreSQL."
        )
