"""Every column that is encrypted at rest, counted by key and sealed anew.

A step takes a few rows that the first key has not sealed, in the order of their primary key, and writes them back sealed with it. It
never waits for a row that somebody else holds: a later pass finds that one. What is written meanwhile by others is theirs. A step
that is repeated finds nothing left to do, so a rotation that was killed is resumed by starting it again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from sqlalchemy import (
    ColumnElement,
    Table,
    Text,
    and_,
    bindparam,
    case,
    cast,
    func,
    literal,
    or_,
    select,
    tuple_,
    update,
)

from penstock.core.cipher import CHECK_CHARS, MEMBER, TEXT_MARK, VERSION, Unreadable, is_sealed_text
from penstock.core.errors import CiphertextInvalid, KeyMissing
from penstock.store import failpoints, sealing
from penstock.store.database import Database, Tx
from penstock.store.sealing import Place
from penstock.store.tables import (
    definitions,
    deliveries,
    events,
    idempotency_keys,
    jobs,
    running,
    runs,
    triggers,
    webhooks,
)

BATCH = 100
Row = Mapping[str, Any]
Key = tuple[Any, ...]


class Column(NamedTuple):
    """A sealed column, and what its values belong to."""

    name: str
    place: Callable[[Row], Place]
    is_text: bool = False


class Sealed(NamedTuple):
    """A table with sealed columns."""

    table: Table
    key: tuple[str, ...]
    needs: tuple[str, ...]
    """Columns that say where a value belongs, beside the key."""
    columns: tuple[Column, ...]

    @property
    def name(self) -> str:
        return str(self.table.name).removeprefix("penstock_")


SEALED = (
    Sealed(jobs, ("id",), ("tenant_id", "root_id"), (
        Column("params", lambda row: sealing.params_of(row["tenant_id"], row["root_id"])),
    )),
    # Before `runs`: what is closed meanwhile takes its values there as they are.
    Sealed(running, ("job_id",), ("tenant_id", "run_id"), (
        Column("progress", lambda row: sealing.progress_of(row["tenant_id"], row["job_id"])),
        Column("stdout_tail", lambda row: sealing.stdout_of(row["tenant_id"], row["run_id"]), is_text=True),
        Column("stderr_tail", lambda row: sealing.stderr_of(row["tenant_id"], row["run_id"]), is_text=True),
    )),
    Sealed(runs, ("job_id", "attempt_no"), ("tenant_id", "id"), (
        Column("params_snapshot", lambda row: sealing.snapshot_of(row["tenant_id"], row["job_id"])),
        Column("result", lambda row: sealing.result_of(row["tenant_id"], row["job_id"])),
        Column("progress", lambda row: sealing.progress_of(row["tenant_id"], row["job_id"])),
        Column("error", lambda row: sealing.error_of(row["tenant_id"], row["job_id"]), is_text=True),
        Column("stdout_tail", lambda row: sealing.stdout_of(row["tenant_id"], row["id"]), is_text=True),
        Column("stderr_tail", lambda row: sealing.stderr_of(row["tenant_id"], row["id"]), is_text=True),
    )),
    Sealed(definitions, ("id",), ("tenant_id",), (
        Column("default_params", lambda row: sealing.defaults_of(row["tenant_id"], row["id"])),
    )),
    Sealed(triggers, ("id",), ("tenant_id",), (
        Column("payload_template", lambda row: sealing.template_of(row["tenant_id"], row["id"])),
    )),
    Sealed(events, ("id",), ("tenant_id",), (
        Column("context", lambda row: sealing.event_of(row["tenant_id"], row["id"])),
    )),
    Sealed(webhooks, ("id",), ("tenant_id",), (
        Column("secret", lambda row: sealing.secret_of(row["tenant_id"], row["id"]), is_text=True),
        Column("previous_secret", lambda row: sealing.secret_of(row["tenant_id"], row["id"]), is_text=True),
    )),
    Sealed(deliveries, ("id",), ("tenant_id",), (
        Column("response_excerpt", lambda row: sealing.answer_of(row["tenant_id"], row["id"]), is_text=True),
        Column("error", lambda row: sealing.answer_of(row["tenant_id"], row["id"]), is_text=True),
    )),
    Sealed(idempotency_keys, ("tenant_id", "key"), (), (
        Column("response_body", lambda row: sealing.response_of(row["tenant_id"], row["key"])),
    )),
)  # fmt: skip

ENGINE_TEXTS = {("runs", "error")}
"""Some errors are sentences of the engine's own ("canceled on request"), written in clear by statements that look for them later."""


class Used(NamedTuple):
    """A key as it is found in the database: its id, and a mark that tells two keys of the same id apart."""

    id: str
    check: str


Census = dict[str, Counter[Used | None]]
"""How many values each column has of each key; None is in clear."""


def census(tx: Tx) -> Census:
    """One pass through each table."""
    found: Census = {}
    for sealed in SEALED:
        kinds = [_kind(tx, sealed, column).label(column.name) for column in sealed.columns]
        for row in tx.rows(select(*kinds, func.count()).select_from(sealed.table).group_by(*kinds)):
            for column, kind in zip(sealed.columns, row[:-1], strict=True):
                if kind:
                    name = f"{sealed.name}.{column.name}"
                    found.setdefault(name, Counter())[_used(kind)] += row[-1]
    return found


_CLEAR = "clear"


def _used(kind: str) -> Used | None:
    if kind == _CLEAR:
        return None
    key_id, _, check = kind.partition(":")
    return Used(key_id, check)


def _kind(tx: Tx, sealed: Sealed, column: Column) -> ColumnElement[Any]:
    """NULL where there is nothing to seal, `clear`, or `id:check` of the key."""
    text = _text(sealed, column)
    find = tx.dialect.position
    mark = TEXT_MARK if column.is_text else f'{{"{MEMBER}":'
    rest = func.substr(text, find(text, VERSION) + len(VERSION))
    key = func.substr(rest, 1, find(rest, ":") + CHECK_CHARS)
    is_sealed = and_(func.substr(text, 1, len(mark)) == mark, find(text, VERSION).between(1, len(mark) + 3))
    return case((~_worth_sealing(sealed, column), None), (is_sealed, key), else_=_CLEAR)


def _text(sealed: Sealed, column: Column) -> ColumnElement[str]:
    return cast(sealed.table.c[column.name], Text)


def _worth_sealing(sealed: Sealed, column: Column) -> ColumnElement[bool]:
    text = _text(sealed, column)
    worth = and_(sealed.table.c[column.name].is_not(None), text.not_in(["", "{}"]))
    if (sealed.name, column.name) in ENGINE_TEXTS:
        worth = and_(worth, text.not_in(ENGINE_SENTENCES))
    return worth


ENGINE_SENTENCES = (
    "canceled on request", "predecessor failed", "crash recovery: its job had moved on", "replaced by the schedule's next moment",
)  # fmt: skip


class Step(NamedTuple):
    """What one step did, and where the next one begins; None at the end of the table."""

    sealed: int
    unreadable: Counter[str]
    next: Key | None


def step(tx: Tx, sealed: Sealed, after: Key | None, limit: int = BATCH) -> Step:
    """Seal the next rows of a table with the first key."""
    ring = tx.codec.ring
    assert ring is not None
    keys = [sealed.table.c[name] for name in sealed.key]
    stale = [_is_stale(sealed, column, ring.prefix) for column in sealed.columns]
    names = dict.fromkeys((*sealed.key, *sealed.needs, *(column.name for column in sealed.columns)))
    query = select(*(sealed.table.c[name] for name in names)).where(or_(*stale)).order_by(*keys).limit(limit)
    if after is not None:
        query = query.where(
            tuple_(*keys) > tuple_(*(literal(value, key.type) for value, key in zip(after, keys, strict=True)))
        )
    if tx.dialect.many_writers:
        query = query.with_for_update(key_share=True, **tx.dialect.skip_locked)
    found = [dict(row) for row in tx.run(query).mappings()]
    unreadable: Counter[str] = Counter()
    changes = [_resealed(tx, sealed, row, unreadable) for row in found]
    _write(tx, sealed, [change for change in changes if change[1]])
    failpoints.reach("rotate.after_update")
    last = tuple(found[-1][name] for name in sealed.key) if len(found) == limit else None
    return Step(sum(len(values) for _, values in changes), unreadable, last)


def _is_stale(sealed: Sealed, column: Column, prefix: str) -> ColumnElement[bool]:
    text = _text(sealed, column)
    marks = [TEXT_MARK] if column.is_text else [f'{{"{MEMBER}":"', f'{{"{MEMBER}": "']
    current = [func.substr(text, 1, len(mark + prefix)) == mark + prefix for mark in marks]
    return and_(_worth_sealing(sealed, column), ~or_(*current))


def _resealed(tx: Tx, sealed: Sealed, row: Row, unreadable: Counter[str]) -> tuple[Row, dict[str, Any]]:
    codec, values = tx.codec, {}
    prefix = codec.ring.prefix if codec.ring else ""
    for column in sealed.columns:
        stored = row[column.name]
        if not stored and (column.is_text or stored is None or stored == {}):
            continue
        if (sealed.name, column.name) in ENGINE_TEXTS and stored in ENGINE_SENTENCES:
            continue
        if column.is_text:
            if is_sealed_text(stored) and stored.startswith(TEXT_MARK + prefix):
                continue
            try:
                opened: Any = codec.open_secret(stored, partial(column.place, row))
            except (KeyMissing, CiphertextInvalid) as error:
                unreadable[error.short] += 1
                continue
            values[column.name] = codec.seal_text(opened, column.place(row))
            continue
        if isinstance(stored, dict) and str(stored.get(MEMBER)).startswith(prefix) and len(stored) == 1:
            continue
        opened = codec.open(stored, partial(column.place, row))
        if isinstance(opened, Unreadable):
            unreadable[opened.error.short] += 1
            continue
        values[column.name] = codec.seal(opened, column.place(row))
    return row, values


def _write(tx: Tx, sealed: Sealed, changes: Sequence[tuple[Row, dict[str, Any]]]) -> None:
    """One statement for all rows of which the same columns change."""
    by_columns: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for row, values in changes:
        keyed = {f"key_{name}": row[name] for name in sealed.key}
        by_columns.setdefault(tuple(values), []).append(
            keyed | {f"new_{name}": value for name, value in values.items()}
        )
    for names, given in by_columns.items():
        here = [sealed.table.c[name] == bindparam(f"key_{name}") for name in sealed.key]
        statement = update(sealed.table).where(*here).values({name: bindparam(f"new_{name}") for name in names})
        tx.run(statement, given)


def scrub(db: Database) -> None:
    """On SQLite, rewrite the file without what was overwritten, and empty the write-ahead log. Needs as much room again as the
    file, and nobody else in it meanwhile. On PostgreSQL this is `VACUUM FULL`, which is left to the operator."""
    if db.name != "sqlite":
        return
    borrowed = db.engine.raw_connection()
    try:
        cursor = borrowed.cursor()
        cursor.execute("PRAGMA busy_timeout = 30000")
        cursor.execute("VACUUM")
        cursor.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        cursor.close()
    finally:
        borrowed.invalidate()
