"""Which keys there are to make, and which are not made yet."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import not_

from penstock.pipeline.errors import QueryError
from penstock.store.pipeline.algebra import Source

if TYPE_CHECKING:
    from penstock.pipeline.auto import AutoPopulate


def keys_to_make(table: AutoPopulate, *restrictions: Any) -> Source:
    """The keys of `key_source & restrictions`, named as the target names them, each once."""
    shape = type(table).declared_shape()
    source = table.restricted_key_source(*restrictions)
    names = [attribute.name for attribute in shape.job_key]
    if missing := [name for name in names if name not in source.attributes]:
        raise QueryError(f"The key_source of {shape.class_name} lacks {missing[0]!r}; it must have {', '.join(names)}.")
    extra = [name for name in source.primary_key if name not in names]
    return source.source.project({name: source.source.columns[name] for name in names}, distinct=bool(extra))


def missing_keys(table: AutoPopulate, *restrictions: Any) -> Source:
    """Those of them that the target does not have."""
    wanted = keys_to_make(table, *restrictions).embed()
    made = table.source.embed().exists([(column, name) for name, column in wanted.columns.items()])
    return wanted.restrict(not_(made))
