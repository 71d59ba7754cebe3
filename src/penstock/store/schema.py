"""The version of the tables. Migrations are Alembic's, on both databases, and frozen: their sum is today's schema.

CONTRIBUTING.md, "A change of the schema", says how to write one.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import Connection, text
from sqlalchemy.exc import DBAPIError, NoSuchTableError

from penstock.core.errors import DatabaseLocked, SchemaMismatch, SchemaOutdated, SchemaTooNew
from penstock.store.database import Database, Tx
from penstock.store.dialect import Lock
from penstock.store.differences import differences, missing
from penstock.store.faults import sqlstate
from penstock.store.tables import metadata

if TYPE_CHECKING:
    from alembic.script import ScriptDirectory

VERSION_TABLE = "penstock_version"
MIGRATIONS = Path(__file__).parent / "migrations"
REVISIONS = tuple(sorted(file.name[:4] for file in (MIGRATIONS / "versions").glob("[0-9]*_*.py")))
"""The migrations of this program, oldest first, by the numbers that their file names begin with."""
HEAD = REVISIONS[-1]

LOCK_SECONDS = 3.0
"""How long a migration waits for a table on PostgreSQL. Everybody else queues behind it meanwhile, so not for long."""
PATIENCE_SECONDS = 60.0
"""How long an upgrade goes on trying to have its tables."""

Progress = Callable[[str, int, int], None]
"""Called with what is being copied, how many of it are done, and how many there are."""

IN_USE = {"55P03", "40P01"}
"""The tables were not to be had in time, or whoever had one waited for another of ours: worth another try."""
DEPENDED_ON = "2BP01"
UNDEFINED = {"42P01", "42703", "42704"}
NOT_OURS = (
    "it was made by a program that was never released, or changed by hand. Nothing was changed. "
    "Restore a backup, or start with a new database."
)


def current(db: Database) -> str | None:
    """Return the revision the database is at, or None if Penstock's tables are not there."""
    with db.read() as tx:
        try:
            version: str | None = tx.scalar(text(f"SELECT version_num FROM {VERSION_TABLE}"))
        except DBAPIError as error:
            if "no such table" in str(error.orig) or getattr(error.orig, "sqlstate", None) == "42P01":
                return None
            raise
        return version


def check(db: Database) -> None:
    """Raise unless the database has been through exactly the migrations of this program."""
    found = current(db)
    if found == HEAD:
        return
    if found is None:
        raise SchemaOutdated("Penstock's tables are not there. Run: penstock db upgrade")
    if found not in REVISIONS:
        raise SchemaTooNew(
            f"The database is at schema {found}, which this Penstock (schema {HEAD}) does not know: it was written by a newer "
            "release. Upgrade the program; the database was not touched."
        )
    raise SchemaOutdated(f"The database is at schema {found}; this Penstock needs {HEAD}. Run: penstock db upgrade")


def verify(db: Database) -> None:
    """Raise unless `check` is content and the database has every table and column that this program uses."""
    check(db)
    with db.read() as tx:
        _refuse(missing(tx))


def compare(db: Database) -> list[str]:
    """Say how the tables, columns, indexes and constraints differ from those of this program; a sentence each."""
    check(db)
    with db.read() as tx:
        return differences(tx)


def upgrade(db: Database, target: str = HEAD, progress: Progress | None = None) -> tuple[str | None, str]:
    """Bring the tables up to date; many processes may call it at once. Return the revisions before and after.

    It is one transaction: a migration that fails or is killed leaves the database as it was. `progress` is told how far a
    migration is that copies rows. `target` is for tests.
    """
    before = current(db)
    if before == target:
        return before, target
    if before is not None:
        try:
            check(db)
        except SchemaOutdated:
            pass
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            with db.dialect.room_on_disk(db.engine), db.write(patient=True) as tx:
                _begin(tx)
                _migrate_or_refuse(tx.conn, target, progress)
                if target == HEAD:
                    _refuse(missing(tx))
            return before, target
        except DBAPIError as error:
            if sqlstate(error) not in IN_USE:
                raise
            if time.monotonic() > deadline:
                raise DatabaseLocked(
                    f"The tables were in use for the {PATIENCE_SECONDS:.0f} s that the upgrade tried to change them. Nothing was "
                    "changed. End the long transaction (penstock doctor names it), or stop the workers, and try again."
                ) from error
        time.sleep(1)  # let those pass that queued behind us


def _begin(tx: Tx) -> None:
    tx.lock(Lock.UPGRADE)
    # Only now: whoever upgrades beside us may take as long as it needs, and so may building an index.
    tx.dialect.limit_locks(tx.conn, LOCK_SECONDS)


def _migrate_or_refuse(conn: Connection, target: str, progress: Progress | None) -> None:
    try:
        _migrate(conn, target, progress)
    except (DBAPIError, NoSuchTableError) as error:
        if sqlstate(error) == DEPENDED_ON:
            raise SchemaMismatch(
                f"The {error.orig.diag.message_detail}, which the upgrade replaces. Nothing was changed. Drop it, upgrade, and "  # type: ignore
                "create it again for the new tables."
            ) from error
        if isinstance(error, DBAPIError) and sqlstate(error) not in UNDEFINED and "no such " not in str(error.orig):
            raise
        raise SchemaMismatch(f"The database lacks {_first_line(error)}: {NOT_OURS}") from error


def _first_line(error: Exception) -> str:
    """What a database says is missing, without its own introduction."""
    said = str(error.orig) if isinstance(error, DBAPIError) else f"table {error}"
    return said.strip().splitlines()[0].removeprefix("no such ").removesuffix(" does not exist")


def _refuse(lacking: list[str]) -> None:
    if lacking:
        more = f" and {len(lacking) - 5} more" if len(lacking) > 5 else ""
        raise SchemaMismatch(f"The database lacks {', '.join(lacking[:5])}{more}: {NOT_OURS}")


def open_embedded(db: Database) -> None:
    """Open the database for use: SQLite migrates itself, PostgreSQL is migrated by its operator. Both are verified."""
    if db.dialect.migrates_itself:
        db.dialect.check_place(db.url)
        if current(db) != HEAD:
            upgrade(db)
    verify(db)
    db.verify = verify


def _scripts() -> ScriptDirectory:
    # Alembic is needed to migrate, not to run: a worker that finds its tables in order never loads it.
    from alembic.config import Config
    from alembic.script import ScriptDirectory

    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    config.set_main_option("path_separator", "os")
    return ScriptDirectory.from_config(config)


def _migrate(conn: Connection, target: str, progress: Progress | None) -> None:
    from alembic.config import Config
    from alembic.runtime.environment import EnvironmentContext

    scripts = _scripts()

    def steps(revision: object, _context: object) -> object:
        return scripts._upgrade_revs(target, revision)  # type: ignore[arg-type]

    with EnvironmentContext(Config(), scripts, fn=steps) as environment:
        environment.configure(
            connection=conn, target_metadata=metadata, version_table=VERSION_TABLE, transactional_ddl=True,
            transaction_per_migration=False, progress=progress,
        )  # fmt: skip
        environment.run_migrations()
