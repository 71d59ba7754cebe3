"""The five fields of a cron expression: read by `cronsim`, refused with the field, the value, the reason and a hint."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from datetime import datetime

from cronsim import CronSim, CronSimError

from penstock.core.errors import InvalidSchedule

SHORTHANDS = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
MAX_LENGTH = 256
MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
DAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")


@dataclass(frozen=True, slots=True)
class Field:
    name: str
    low: int
    high: int
    names: tuple[str, ...] = ()

    def number(self, text: str, whole: str) -> int:
        if text in self.names:
            return self.names.index(text) + self.low
        if not (text.isascii() and text.isdigit()):
            near = " or ".join(difflib.get_close_matches(text, self.names, n=2))
            raise self.error(whole, f"{text!r} is not a value" if text else "a value is missing", near or None)
        value = int(text[:9])
        if not self.low <= value <= self.high:
            raise self.error(whole, f"{text} is outside {self.low}-{self.high}")
        return value

    def error(self, value: str, reason: str, hint: str | None = None) -> InvalidSchedule:
        also = f"Did you mean {hint}?" if hint else self.expectation
        return InvalidSchedule(
            f"The {self.name} field {value[:80]!r} cannot be used: {reason}. {also}", field=self.name
        )

    @property
    def expectation(self) -> str:
        names = f" or {self.names[0]}-{self.names[-1]}" if self.names else ""
        return f"Expected {self.low}-{self.high}{names}, *, a list a,b, a range a-b or a step */n."

    def check(self, text: str) -> None:
        for term in text.split(","):
            self._check_term(term, text)

    def _check_term(self, term: str, whole: str) -> None:
        base, slash, step = term.partition("/")
        if slash:
            if not (step.isascii() and step.isdigit()) or int(step[:9]) == 0:
                raise self.error(whole, f"the step {step!r} is not a positive number")
            if int(step[:9]) > self.high:
                raise self.error(
                    whole, f"a step of {step} never comes round within {self.low}-{self.high} and would fire only once"
                )
        if base == "*" or (self.name == "day-of-month" and base in ("L", "LW") and not slash):
            return
        if self.name == "day-of-week" and not slash and self._check_nth(base, whole):
            return
        first, dash, last = base.partition("-")
        low = self.number(first, whole)
        if dash and self.number(last, whole) < low:
            ends = [(first, self.names[-1] if self.names else str(self.high)), (self._start, last)]
            across = ",".join(a if a == b else f"{a}-{b}" for a, b in ends)
            raise self.error(whole, f"the range {base} runs backwards", across)

    def _check_nth(self, base: str, whole: str) -> bool:
        day, hash_, nth = base.partition("#")
        if hash_:
            self.number(day, whole)
            if nth not in ("1", "2", "3", "4", "5"):
                raise self.error(whole, f"#{nth} is not one of #1 to #5 (the n-th such weekday of a month)")
            return True
        if len(base) == 2 and base[1] == "L":
            self.number(base[0], whole)
            return True
        return False

    @property
    def _start(self) -> str:
        return self.names[0] if self.names else str(self.low)


FIELDS = (
    Field("minute", 0, 59),
    Field("hour", 0, 23),
    Field("day-of-month", 1, 31),
    Field("month", 1, 12, MONTHS),
    Field("day-of-week", 0, 7, DAYS),
)


def normalise(expression: str) -> str:
    """One space between fields, names in capitals, shorthands written out."""
    if not isinstance(expression, str) or not expression.strip():
        raise InvalidSchedule("A cron expression is needed, for example '0 2 * * *' or '@daily'.", field="cron_expr")
    if len(expression) > MAX_LENGTH:
        raise InvalidSchedule(f"The cron expression is longer than {MAX_LENGTH} characters.", field="cron_expr")
    text = " ".join(expression.split())
    if text.startswith("@"):
        return _written_out(text.lower())
    return text.upper()


def _written_out(shorthand: str) -> str:
    if shorthand in SHORTHANDS:
        return SHORTHANDS[shorthand]
    if shorthand == "@reboot":
        hint = "A schedule belongs to the database, not to one machine's start; run the job from your start script."
    else:
        near = difflib.get_close_matches(shorthand, SHORTHANDS, n=1)
        hint = f"Did you mean {near[0]}?" if near else f"Known: {' '.join(SHORTHANDS)}."
    raise InvalidSchedule(f"{shorthand[:80]!r} is not a schedule. {hint}", field="cron_expr")


def parse_fields(expression: str) -> tuple[CronSim, bool]:
    """The fields as read by cronsim, and whether the expression follows real time."""
    parts = expression.split(" ")
    if len(parts) != len(FIELDS):
        hint = " There is no seconds field: a minute is the finest step." if len(parts) == 6 else ""
        raise InvalidSchedule(
            f"The cron expression {expression[:80]!r} has {len(parts)} fields; "
            f"expected five: minute hour day-of-month month day-of-week, as in '0 2 * * MON-FRI'.{hint}",
            field="cron_expr",
        )
    for field, part in zip(FIELDS, parts, strict=True):
        field.check(part)
    try:
        fields = CronSim(expression, datetime(2000, 1, 1))  # noqa: DTZ001 - the fields have no zone
    except CronSimError as error:
        raise InvalidSchedule(
            f"The cron expression {expression!r} never fires: {parts[2]} is no date of month {parts[3]}. "
            "Use a day that exists, or L for a month's last day.",
            field="day-of-month",
        ) from error
    wild = parts[0].startswith("*") or parts[1].startswith("*") or len(fields.minutes) == 60 or len(fields.hours) == 24
    return fields, wild
