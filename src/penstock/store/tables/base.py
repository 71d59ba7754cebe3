"""One MetaData for the engine's tables, with names for every constraint so that migrations can find them."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from sqlalchemy import CheckConstraint, MetaData, text

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s_%(referred_table_name)s",
        "pk": "pk_%(table_name)s",
    }
)


def check_in(column: str, values: type[StrEnum] | tuple[str, ...], name: str | None = None) -> CheckConstraint:
    return CheckConstraint(
        one_of(column, *(values if isinstance(values, tuple) else [v.value for v in values])),
        name=name or f"{column}_known",
    )


def one_of(column: str, *values: str) -> str:
    """`IN`, written out: for that SQLite makes a table in every statement, and looks into it for every row."""
    return " OR ".join(f"{column} = '{value}'" for value in values)


def check_filled(column: str) -> CheckConstraint:
    return CheckConstraint(f"length({column}) > 0", name=f"{column}_filled")


def where(condition: str) -> dict[str, Any]:
    """A partial index's condition, for both databases."""
    return {"postgresql_where": text(condition), "sqlite_where": text(condition)}
