"""Expressions in the MySQL dialect of the seeds, read by sqlglot and rebuilt as SQLAlchemy expressions.

The text itself never reaches the database. Only the node types below are understood: no subquery, no second statement,
no function that is not listed, no name that is not an attribute.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import BigInteger, Double, and_, cast, func, literal, not_, or_, type_coerce
from sqlalchemy.sql import ColumnElement

from penstock.pipeline import extras, kinds
from penstock.pipeline.errors import RestrictionError
from penstock.pipeline.moments import SECONDS, Moments
from penstock.pipeline.words import quote_names
from penstock.store.pipeline.shape import Attribute
from penstock.store.pipeline.types import column_type

TIMES = ("timestamp", "datetime", "date")
TEXTS = ("varchar", "char", "text", "enum")
NUMBERS = (*kinds.INTEGERS, "float64", "decimal", "bool")
FLIPPED = {operator.lt: operator.gt, operator.gt: operator.lt, operator.le: operator.ge, operator.ge: operator.le}
Comparison = Callable[[Any, Any], Any]


@dataclass(frozen=True, slots=True)
class Term:
    """A piece of an expression: a column expression of a kind, or a literal or moment that takes its kind from its peer."""

    expr: ColumnElement[Any] | None = None
    attribute: Attribute | None = None
    text: str | None = None
    quoted: bool = False
    offset: float | None = None

    @property
    def kind(self) -> str | None:
        return self.attribute.kind if self.attribute else None


class Expressions:
    """Reads expressions over one relation's attributes."""

    def __init__(
        self, attributes: Mapping[str, Attribute], columns: Mapping[str, ColumnElement[Any]], moments: Moments
    ) -> None:
        self.attributes, self.columns, self.moments = attributes, columns, moments
        self.exp: Any = extras.sqlglot().exp
        self.text = ""
        self.aggregates = False
        self.named = 0

    def condition(self, text: str) -> ColumnElement[bool]:
        """One boolean expression that names an attribute at least."""
        tree = self._parse(text)
        built = self._boolean(tree)
        if not self.named:
            raise self._fault("it names no attribute")
        return built

    def value(self, name: str, text: str, *, aggregates: bool = False) -> tuple[Attribute, ColumnElement[Any]]:
        """A computed attribute, and how it is computed."""
        self.aggregates = aggregates
        term = self._term(self._parse(text))
        if term.expr is None or term.attribute is None:
            term = self._constant(term)
        assert term.attribute is not None and term.expr is not None
        made = Attribute(name, term.attribute.kind, term.attribute.args, nullable=True)
        return made, type_coerce(term.expr, column_type(made.kind, made.args))

    def _parse(self, text: str) -> Any:
        self.text, self.named = text, 0
        sqlglot = extras.sqlglot()
        try:
            quoted = quote_names(text, self.attributes)
            statements = [tree for tree in sqlglot.parse(quoted, dialect="mysql") if tree is not None]
        except sqlglot.errors.SqlglotError as error:
            first = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise self._fault(
                f"it cannot be read ({first}). A name that is also a word of SQL goes in backticks"
            ) from error
        except RecursionError as error:
            raise self._fault("it is nested too deeply") from error
        if len(statements) != 1:
            raise self._fault("expected exactly one expression")
        return statements[0]

    def _fault(self, message: str) -> RestrictionError:
        shown = self.text if len(self.text) <= 200 else self.text[:200] + "…"
        return RestrictionError(f"The expression {shown!r} cannot be used: {message}.")

    def _boolean(self, node: Any) -> ColumnElement[bool]:
        exp = self.exp
        if isinstance(node, exp.Paren):
            return self._boolean(node.this)
        if isinstance(node, exp.And):
            return and_(self._boolean(node.this), self._boolean(node.expression))
        if isinstance(node, exp.Or):
            return or_(self._boolean(node.this), self._boolean(node.expression))
        if isinstance(node, exp.Not):
            return not_(self._boolean(node.this))
        for kind, compare in self._comparisons().items():
            if isinstance(node, kind):
                return self._compare(compare, self._term(node.this), self._term(node.expression))
        if isinstance(node, exp.Is):
            return self._is(node)
        if isinstance(node, exp.In):
            return self._in(node)
        if isinstance(node, exp.Between):
            tested = self._term(node.this)
            return and_(
                self._compare(operator.ge, tested, self._term(node.args["low"])),
                self._compare(operator.le, tested, self._term(node.args["high"])),
            )
        if isinstance(node, exp.Like):
            return self._like(node)
        return self._truth(self._term(node))

    def _comparisons(self) -> dict[Any, Comparison]:
        exp = self.exp
        return {
            exp.EQ: operator.eq, exp.NEQ: operator.ne, exp.LT: operator.lt, exp.LTE: operator.le, exp.GT: operator.gt,
            exp.GTE: operator.ge, exp.NullSafeEQ: lambda a, b: a.is_not_distinct_from(b),
        }  # fmt: skip

    def _truth(self, term: Term) -> ColumnElement[bool]:
        if term.expr is None or term.kind not in NUMBERS:
            raise self._fault("expected a condition such as name = value")
        return term.expr.is_(True) if term.kind == "bool" else term.expr != 0

    def _compare(self, compare: Comparison, left: Term, right: Term) -> ColumnElement[bool]:
        if left.expr is None and right.expr is not None:
            return self._compare(FLIPPED.get(compare, compare), right, left)
        if left.expr is None or left.attribute is None:
            raise self._fault("it compares two constants")
        if left.kind in ("blob", "json"):
            raise self._fault(f"{left.attribute.name!r} is a {left.kind} and cannot be compared")
        if right.expr is not None:
            if self._family(left) != self._family(right):
                raise self._fault(f"it compares {left.kind} with {right.kind}")
            result: ColumnElement[bool] = compare(left.expr, right.expr)
            return result
        result = compare(left.expr, self._like_peer(right, left.attribute))
        return result

    def _family(self, term: Term) -> str:
        if term.kind in NUMBERS:
            return "number"
        return "text" if term.kind in TEXTS else str(term.kind)

    def _like_peer(self, term: Term, peer: Attribute) -> ColumnElement[Any]:
        """A literal or moment, as the attribute it meets."""
        if term.offset is not None:
            if peer.kind not in TIMES:
                raise self._fault(f"it compares a time with {peer.name!r}, which is {peer.type}")
            return self.moments.now(peer.kind, term.offset)
        assert term.text is not None
        try:
            value = kinds.literal(peer, term.text)
        except (ValueError, ArithmeticError) as error:
            raise self._fault(f"{term.text!r} does not fit {peer.name!r}, which is {peer.type}") from error
        if isinstance(value, float) and peer.kind in kinds.INTEGERS:
            return literal(value, Double())
        return literal(value, column_type(peer.kind, peer.args))

    def _is(self, node: Any) -> ColumnElement[bool]:
        term = self._term(node.this)
        if term.expr is None:
            raise self._fault("IS takes an attribute on its left")
        if isinstance(node.expression, self.exp.Null):
            return term.expr.is_(None)
        if isinstance(node.expression, self.exp.Boolean) and term.kind == "bool":
            return term.expr.is_(bool(node.expression.this))
        raise self._fault("expected IS NULL or IS NOT NULL")

    def _in(self, node: Any) -> ColumnElement[bool]:
        given = node.args.get("expressions")
        if node.args.get("query") or node.args.get("field") or node.args.get("unnest") or not given:
            raise self._fault("IN takes a list of values; restrict by a relation instead of a subquery")
        tested = self._term(node.this)
        return or_(*(self._compare(operator.eq, tested, self._term(item)) for item in given))

    def _like(self, node: Any) -> ColumnElement[bool]:
        tested, pattern = self._term(node.this), self._term(node.expression)
        if tested.expr is None or tested.kind not in TEXTS or pattern.text is None:
            raise self._fault("LIKE takes a text attribute and a pattern in quotes")
        return tested.expr.ilike(pattern.text, escape="\\")

    def _term(self, node: Any) -> Term:
        exp = self.exp
        if isinstance(node, exp.Paren):
            return self._term(node.this)
        if isinstance(node, exp.Column):
            return self._column(node)
        if isinstance(node, exp.Literal):
            return Term(text=str(node.this), quoted=bool(node.is_string))
        if isinstance(node, exp.Boolean):
            return Term(text="1" if node.this else "0")
        if isinstance(node, exp.Neg):
            return self._negative(self._term(node.this))
        if isinstance(node, exp.Add | exp.Sub | exp.Mul | exp.Div | exp.Mod):
            return self._arithmetic(node)
        if isinstance(node, exp.DateSub | exp.DateAdd):
            sign = -1 if isinstance(node, exp.DateSub) else 1
            return self._shift(self._term(node.this), sign * self._seconds(node.expression, node.args.get("unit")))
        if self._is_now(node):
            return Term(offset=0.0)
        return self._call(node)

    def _column(self, node: Any) -> Term:
        name = str(node.name)
        if node.table:
            raise self._fault(f"{node.sql()!r} names a table; name the attribute alone")
        if name not in self.attributes:
            raise self._fault(f"there is no attribute {name!r}; there are {', '.join(self.attributes)}")
        self.named += 1
        return Term(self.columns[name], self.attributes[name])

    def _is_now(self, node: Any) -> bool:
        exp = self.exp
        if isinstance(node, exp.CurrentTimestamp | exp.UtcTimestamp | exp.CurrentDate):
            return True
        return isinstance(node, exp.Anonymous) and str(node.this).upper() in ("NOW", "SYSDATE", "LOCALTIMESTAMP")

    def _negative(self, term: Term) -> Term:
        if term.text is not None and not term.quoted:
            return Term(text=term.text[1:] if term.text.startswith("-") else f"-{term.text}")
        if term.expr is None or term.kind not in NUMBERS:
            raise self._fault("'-' takes a number")
        return Term(-term.expr, term.attribute)

    def _arithmetic(self, node: Any) -> Term:
        exp = self.exp
        if isinstance(node.expression, exp.Interval):
            if not isinstance(node, exp.Add | exp.Sub):
                raise self._fault("an INTERVAL can be added or subtracted")
            sign = -1 if isinstance(node, exp.Sub) else 1
            interval = node.expression
            return self._shift(self._term(node.this), sign * self._seconds(interval.this, interval.args.get("unit")))
        left, right = self._number(self._term(node.this)), self._number(self._term(node.expression))
        assert left.expr is not None and right.expr is not None
        whole = left.kind in kinds.INTEGERS and right.kind in kinds.INTEGERS
        kind = "float64" if isinstance(node, exp.Div) or not whole else "int64"
        a, b = self._wide(left, kind), self._wide(right, kind)
        if isinstance(node, exp.Mod):
            if not whole:
                raise self._fault("% takes whole numbers")
            return Term(a % func.nullif(b, 0), Attribute("", kind))
        if isinstance(node, exp.Div):
            return Term(a / func.nullif(b, 0), Attribute("", kind))
        operate = {exp.Add: operator.add, exp.Sub: operator.sub, exp.Mul: operator.mul}[type(node)]
        return Term(operate(a, b), Attribute("", kind))

    def _wide(self, term: Term, kind: str) -> ColumnElement[Any]:
        if term.kind == "decimal":
            return self._decimal_as_real(term)
        wide: ColumnElement[Any] = cast(term.expr, Double() if kind == "float64" else BigInteger())
        return wide

    def _number(self, term: Term) -> Term:
        term = self._constant(term) if term.expr is None else term
        if term.kind not in NUMBERS:
            raise self._fault("arithmetic takes numbers")
        return term

    def _constant(self, term: Term) -> Term:
        """A literal that meets no attribute takes its kind from its looks."""
        if term.offset is not None:
            return Term(self.moments.now("timestamp", term.offset), Attribute("", "timestamp"))
        assert term.text is not None
        if term.quoted:
            return Term(literal(term.text), Attribute("", "text"))
        try:
            return Term(literal(int(term.text), BigInteger()), Attribute("", "int64"))
        except ValueError:
            return Term(literal(float(term.text), Double()), Attribute("", "float64"))

    def _seconds(self, amount: Any, unit: Any) -> float:
        name = str(unit.name if unit is not None else "").upper().rstrip("S")
        if name not in SECONDS:
            raise self._fault(f"an INTERVAL is in {', '.join(SECONDS)}, not {name or 'nothing'}")
        try:
            negative = isinstance(amount, self.exp.Neg)
            return float((amount.this if negative else amount).name) * SECONDS[name] * (-1 if negative else 1)
        except ValueError as error:
            raise self._fault("an INTERVAL is a number and a unit: INTERVAL 1 HOUR") from error

    def _shift(self, term: Term, seconds: float) -> Term:
        if term.offset is not None:
            return Term(offset=term.offset + seconds)
        if term.expr is None or term.kind not in ("timestamp", "datetime"):
            raise self._fault("an INTERVAL is added to a time")
        return Term(self.moments.shifted(term.expr, str(term.kind), seconds), term.attribute)

    def _call(self, node: Any) -> Term:
        exp = self.exp
        if isinstance(node, exp.Count | exp.Sum | exp.Avg | exp.Min | exp.Max):
            return self._aggregate(node)
        if isinstance(node, exp.Lower | exp.Upper | exp.Length):
            term = self._term(node.this)
            if term.expr is None or term.kind not in TEXTS:
                raise self._fault(f"{node.key}() takes a text attribute")
            if isinstance(node, exp.Length):
                return Term(func.length(term.expr), Attribute("", "int64"))
            make = func.lower if isinstance(node, exp.Lower) else func.upper
            return Term(make(term.expr), Attribute("", "text"))
        if isinstance(node, exp.Abs):
            term = self._number(self._term(node.this))
            return Term(func.abs(term.expr), term.attribute)
        if isinstance(node, exp.Round) and not node.args.get("decimals"):
            term = self._number(self._term(node.this))
            return Term(func.round(cast(term.expr, Double())), Attribute("", "float64"))
        if isinstance(node, exp.Coalesce):
            return self._coalesce(node)
        raise self._fault(f"{node.sql(dialect='mysql')!r} is not understood here")

    def _coalesce(self, node: Any) -> Term:
        first = self._term(node.this)
        if first.expr is None or first.attribute is None:
            raise self._fault("coalesce() takes an attribute first")
        rest = [self._term(item) for item in node.expressions]
        peers = [item.expr if item.expr is not None else self._like_peer(item, first.attribute) for item in rest]
        return Term(func.coalesce(first.expr, *peers), first.attribute)

    def _aggregate(self, node: Any) -> Term:
        exp = self.exp
        if not self.aggregates:
            raise self._fault(f"{node.key}() belongs in aggr()")
        if isinstance(node, exp.Count):
            return self._count(node)
        term = self._term(node.this)
        if term.expr is None or term.attribute is None or term.kind in ("blob", "json"):
            raise self._fault(f"{node.key}() takes an attribute")
        if isinstance(node, exp.Min | exp.Max):
            make = func.min if isinstance(node, exp.Min) else func.max
            return Term(make(term.expr), term.attribute)
        self._number(term)
        if isinstance(node, exp.Sum) and term.kind in kinds.INTEGERS:
            return Term(cast(func.sum(term.expr), BigInteger()), Attribute("", "int64"))
        if isinstance(node, exp.Sum) and term.kind == "decimal":
            return Term(func.sum(term.expr), Attribute("", "decimal", (18, term.attribute.args[1])))
        number = self._wide(term, "float64")
        made = func.sum(number) if isinstance(node, exp.Sum) else func.avg(number)
        return Term(self._with_nan(term, made), Attribute("", "float64"))

    def _decimal_as_real(self, term: Term) -> ColumnElement[Any]:
        assert term.attribute is not None
        assert term.expr is not None
        return self.moments.db.dialect.user_tables.decimal_as_real(term.expr, int(term.attribute.args[1]))

    def _with_nan(self, term: Term, made: ColumnElement[Any]) -> ColumnElement[Any]:
        if term.kind != "float64":
            return made
        assert term.expr is not None
        nan = literal(float("nan"), column_type("float64", ()))
        return self.moments.db.dialect.user_tables.with_nan(term.expr, made, nan)

    def _count(self, node: Any) -> Term:
        exp = self.exp
        if isinstance(node.this, exp.Star):
            return Term(func.count(), Attribute("", "int64"))
        inner = node.this
        distinct = isinstance(inner, exp.Distinct)
        if distinct and len(inner.expressions) == 1:
            inner = inner.expressions[0]
        term = self._term(inner)
        if term.expr is None:
            raise self._fault("count() takes * or an attribute")
        counted: ColumnElement[Any] = term.expr.distinct() if distinct else term.expr
        return Term(func.count(counted), Attribute("", "int64"))
