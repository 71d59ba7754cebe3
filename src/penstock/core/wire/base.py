"""What every model on the wire is made of."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer, StringConstraints

EARLIEST = datetime(1970, 1, 1, tzinfo=UTC)
LATEST = datetime(9000, 1, 1, tzinfo=UTC)
MAX_INT32 = 2**31 - 1
MAX_PAGE = 1000
MAX_OFFSET = 1_000_000


class Request(BaseModel):
    """What a caller sends. Unknown fields are refused."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)


class Answer(BaseModel):
    """What the service sends."""

    model_config = ConfigDict(json_schema_serialization_defaults_required=True)


AnswerT = TypeVar("AnswerT", bound=Answer)


def _only_text(value: Any) -> Any:
    if isinstance(value, str | datetime):
        return value
    raise ValueError("expected a time such as 2026-02-16T10:30:00Z")


def _in_reach(moment: datetime) -> datetime:
    if moment.tzinfo is None or moment.utcoffset() is None:
        raise ValueError("has no time zone; write it as 2026-02-16T10:30:00Z")
    if not EARLIEST.year < moment.year < LATEST.year:
        raise ValueError("is out of reach; expected a year from 1971 to 8999")
    return moment.astimezone(UTC)


def _printable(text: str) -> str:
    if any(ord(char) < 32 or ord(char) == 127 or 0xD800 <= ord(char) <= 0xDFFF for char in text):
        raise ValueError("contains a control character")
    return text


def _shown(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")


Moment = Annotated[datetime, BeforeValidator(_only_text), AfterValidator(_in_reach)]
"""An instant that a caller names: ISO 8601, with a time zone."""

Instant = Annotated[datetime, PlainSerializer(_shown, return_type=str, when_used="json")]
"""An instant that we tell: UTC, with a Z."""

Name = Annotated[str, StringConstraints(min_length=1, max_length=200, pattern=r"\S"), AfterValidator(_printable)]
Label = Annotated[str, StringConstraints(min_length=1, max_length=500, pattern=r"\S"), AfterValidator(_printable)]
Text = Annotated[str, StringConstraints(max_length=10_000), AfterValidator(_printable)]
Slug = Annotated[str, StringConstraints(min_length=1, max_length=100, pattern=r"^[a-z0-9][a-z0-9._-]*$")]
Count = Annotated[int, Field(strict=True, ge=0, le=MAX_INT32)]
Int32 = Annotated[int, Field(strict=True, ge=-(2**31), le=MAX_INT32)]
Flag = Annotated[bool, Field(strict=True)]
JsonObject = dict[str, Any]
