"""One call of make(), in whichever of its forms, from its start to its commit."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from contextlib import suppress
from inspect import isgeneratorfunction
from typing import TYPE_CHECKING, Any, cast

from penstock.pipeline.blob import pack
from penstock.pipeline.errors import BlobError, EmptyMake, InputChanged, PipelineError
from penstock.pipeline.jobs import encode_key
from penstock.pipeline.make import Earlier, MakeScope
from penstock.store.database import Tx

if TYPE_CHECKING:
    from penstock.pipeline.auto import AutoPopulate


def run_make(
    table: AutoPopulate, key: Mapping[str, Any], make_kwargs: Mapping[str, Any], earlier: Earlier | None = None
) -> MakeScope:
    """Call make() for one key; what it inserted waits in the scope that this returns."""
    shape = table.base
    scope = MakeScope(table.connection, shape, encode_key(shape, key, table.connection.backend), earlier)
    with table.connection.making(scope):
        try:
            if table.makes_in_parts():
                _in_parts(table, dict(key), make_kwargs, scope)
            elif isgeneratorfunction(table.make):
                _by_yields(table, dict(key), make_kwargs, scope)
            else:
                table.make(dict(key), **make_kwargs)
        except BaseException as error:
            scope.rollback(error)
            raise
    return scope


def commit(table: AutoPopulate, key: Mapping[str, Any], scope: MakeScope, settle: Callable[[Tx], None]) -> None:
    """Write one key by itself. What make() inserted and what `settle` writes commit together, or not at all."""

    def before_commit(tx: Tx) -> None:
        if not scope.made_key and tx.first((table & dict(key)).source.select().limit(1)) is None:
            raise EmptyMake(
                f"make() ended without inserting a row into {type(table).__name__} for {dict(key)}. Insert one, leave the "
                "key out of key_source, or call jobs.ignore(key)."
            )
        settle(tx)

    scope.commit(before_commit)


def _in_parts(table: AutoPopulate, key: dict[str, Any], make_kwargs: Mapping[str, Any], scope: MakeScope) -> None:
    """Fetch and compute without a transaction; then, in one, see that the input is still the same, and insert."""
    fetched = table.make_fetch(dict(key), **make_kwargs)
    computed = table.make_compute(dict(key), *_as_tuple(fetched))
    scope.opened()
    if not _same(fetched, table.make_fetch(dict(key), **make_kwargs)):
        raise InputChanged(f"The input of {key} changed while it was being computed; the result was thrown away.")
    table.make_insert(dict(key), *_as_tuple(computed))


def _by_yields(table: AutoPopulate, key: dict[str, Any], make_kwargs: Mapping[str, Any], scope: MakeScope) -> None:
    """The same for a make() that yields what it fetched, then what it computed. It is started anew inside the transaction,
    where the result is sent back to it in place of the first yield's value, and it goes on to insert."""

    def started() -> tuple[Generator[Any, Any, Any], Any]:
        steps = cast("Generator[Any, Any, Any]", table.make(dict(key), **make_kwargs))
        return steps, next(steps)

    try:
        steps, fetched = started()
        computed = next(steps)
        steps.close()
    except StopIteration as error:
        raise PipelineError(
            f"make() of {type(table).__name__} is a generator, but did not yield twice: expected it to yield what it "
            "fetched, then what it computed, and then to insert."
        ) from error
    scope.opened()
    steps, again = started()
    if not _same(fetched, again):
        raise InputChanged(f"The input of {key} changed while it was being computed; the result was thrown away.")
    with suppress(StopIteration):
        steps.send(computed)
    steps.close()


def _as_tuple(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)


def _same(one: Any, other: Any) -> bool:
    try:
        return pack(one) == pack(other)
    except BlobError:
        if hasattr(one, "equals"):
            return bool(one.equals(other))
        if isinstance(one, tuple | list) and isinstance(other, tuple | list):
            return len(one) == len(other) and all(_same(a, b) for a, b in zip(one, other, strict=True))
        return bool(one == other)
