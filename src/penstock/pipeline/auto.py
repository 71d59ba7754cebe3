"""Tables that compute themselves: `Imported` from outside, `Computed` from other tables."""

from __future__ import annotations

from functools import partial
from typing import Any, ClassVar

from sqlalchemy import Connection as SqlConnection

from penstock.pipeline.errors import PipelineError, QueryError
from penstock.pipeline.jobs import JobsTable
from penstock.pipeline.keysource import keys_to_make, missing_keys
from penstock.pipeline.options import Options
from penstock.pipeline.populate import populate
from penstock.pipeline.relation import Relation, as_relation
from penstock.pipeline.retry import RetryPolicy
from penstock.pipeline.schema import TIERS
from penstock.pipeline.table import Table
from penstock.store.pipeline.algebra import Source


class AutoPopulate(Table):
    """What `Imported` and `Computed` have in common: a `make(key)` of your own, called for every key that is missing."""

    retry_policy: ClassVar[RetryPolicy] = RetryPolicy()

    def make(self, key: dict[str, Any], **kwargs: Any) -> None:
        """Compute one key and insert its row, and rows of its parts. Write this one, or the three below."""
        raise NotImplementedError(
            f"{type(self).__name__} has no make(key): write one, or make_fetch, make_compute and make_insert."
        )

    def make_fetch(self, key: dict[str, Any], **kwargs: Any) -> Any:
        """Read the input. It is read again before the insert, and must not have changed."""
        raise NotImplementedError

    def make_compute(self, key: dict[str, Any], *fetched: Any) -> Any:
        """Compute, without touching the database. Takes what `make_fetch` returned."""
        raise NotImplementedError

    def make_insert(self, key: dict[str, Any], *computed: Any) -> None:
        """Insert what `make_compute` returned."""
        raise NotImplementedError

    def makes_in_parts(self) -> bool:
        """Whether the class is written as fetch, compute, insert."""
        cls = type(self)
        return cls.make is AutoPopulate.make and cls.make_compute is not AutoPopulate.make_compute

    @property
    def key_source(self) -> Any:
        """The keys to make: all combinations of the parents in the primary key. Override it to leave some out."""
        shape = type(self).declared_shape()
        schema = type(self).schema
        assert schema is not None
        source: Relation | None = None
        for key in shape.foreign_keys:
            if key.in_key:
                parent = schema.relation_of(key.parent_schema, key.parent_table)
                named = {near: far for near, far in zip(key.columns, key.parent_columns, strict=True) if near != far}
                kept = [
                    n
                    for n, a in parent.attributes.items()
                    if not a.in_key and a.kind != "blob" and n not in shape.primary_key
                ]
                if source is not None:
                    kept = [name for name in kept if name not in source.attributes]
                projected = parent.proj(*kept, **named)
                source = projected if source is None else source * projected
        if source is None:
            raise QueryError(
                f"{shape.class_name} has no parent in its primary key, so there is nothing to make it from."
            )
        return source

    def chooses_keys(self) -> bool:
        """Whether the class has a `key_source` of its own."""
        return next(cls for cls in type(self).__mro__ if "key_source" in vars(cls)) is not AutoPopulate

    def restricted_key_source(self, *restrictions: Any) -> Relation:
        return as_relation(self.key_source).restrict(*restrictions)

    @property
    def jobs(self) -> JobsTable:
        """The job table, created when first asked for."""
        return JobsTable(self)

    def populate(
        self,
        *restrictions: Any,
        suppress_errors: bool = False,
        return_exception_objects: bool = False,
        reserve_jobs: bool = False,
        order: str = "original",
        limit: int | None = None,
        max_calls: int | None = None,
        display_progress: bool = False,
        processes: int = 1,
        make_kwargs: dict[str, Any] | None = None,
        priority: int | None = None,
        refresh: bool | None = None,
    ) -> dict[str, Any]:
        """Call `make` for every key of `key_source & restrictions` that is not there, until no work is left.

        With `reserve_jobs=True` any number of processes share the work through the job table. Answers
        `{'success_count': int, 'error_list': [(key, message or exception), …]}`.
        """  # fmt: skip
        if self.connection.in_transaction or self.connection.scope is not None:
            raise PipelineError("Populate cannot be called during a transaction.")
        options = Options(
            restrictions, suppress_errors, return_exception_objects, reserve_jobs, order, limit, max_calls,
            display_progress, processes, make_kwargs or {}, priority, refresh,
        )  # fmt: skip
        return populate(self, options)

    def progress(self, *restrictions: Any, display: bool = False) -> tuple[int, int]:
        """How many keys remain, and how many there are in all."""
        total, remaining = (
            int(self.connection.read(partial(_count, source)))
            for source in (keys_to_make(self, *restrictions), missing_keys(self, *restrictions))
        )
        if display:
            print(f"{type(self).__name__}: {total - remaining} of {total} made, {remaining} to go")  # noqa: T201
        return remaining, total


class Imported(AutoPopulate):
    """Computed from what is outside the database: files, instruments, services."""

    tier = "imported"


class Computed(AutoPopulate):
    """Computed from other tables alone."""

    tier = "computed"


def _count(source: Source, conn: SqlConnection) -> Any:
    return conn.execute(source.count()).scalar_one()


TIERS.update(imported=Imported, computed=Computed)
