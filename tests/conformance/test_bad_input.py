"""What bad input gets: a typed error that says what is wrong, and nothing written."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from penstock import (
    InvalidInput,
    InvalidPayload,
    ManualClock,
    NaiveDatetime,
    NotFound,
    Penstock,
    UnknownDefinition,
    UnknownTenant,
)  # fmt: skip
from tests.conformance.helpers import nothing_written, numbered


def nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


CIRCULAR: dict[str, Any] = {}
CIRCULAR["again"] = CIRCULAR

PARAMS: list[tuple[Any, str, str]] = [
    ([], "$", "object"),
    ("text", "$", "object"),
    ({"n": float("nan")}, "$.n", "not JSON"),
    ({"n": [1, float("inf")]}, "$.n[1]", "not JSON"),
    ({"n": "a\0b"}, "$.n", "NUL"),
    ({"a\0b": 1}, "$", "NUL"),
    ({"n": "\ud83d"}, "$.n", "surrogate"),
    ({"n": {"\udc00": 1}}, "$.n", "surrogate"),
    ({"n": 2**64}, "$.n", "64 bits"),
    ({"n": object()}, "$.n", "object is not JSON"),
    ({"n": {1, 2}}, "$.n", "set is not JSON"),
    ({"n": b"bytes"}, "$.n", "bytes is not JSON"),
    ({"n": datetime(2026, 1, 1, tzinfo=UTC)}, "$.n", "datetime is not JSON"),
    ({1: "x"}, "$", "not a string"),
    ({"n": nested(70)}, "$.n[0]", "64 levels"),
    (CIRCULAR, "$.again", "64 levels"),
    ({"n": "x" * (1024 * 1024)}, "$", "1024 KiB"),
    ({"n": "é" * (600 * 1024)}, "$", "1024 KiB"),
]


def test_params(app: Penstock) -> None:
    with nothing_written(app):
        for params, path, what in PARAMS:
            for ask in (
                lambda p: app.enqueue("work", p),
                lambda p: app.enqueue("free", p, adhoc=True),
                lambda p: app.enqueue_many("work", [{}, p]),
                lambda p: app.groups.create([("work", {}), ("work", p)]),
            ):
                with pytest.raises(InvalidPayload) as refused:
                    ask(params)
                assert any(f.path.startswith(path) and what in f.message for f in refused.value.faults), refused.value


def test_update_checks_the_same(app: Penstock) -> None:
    (job,) = numbered(app, [1])
    with nothing_written(app):
        for params, _, what in PARAMS:
            with pytest.raises(InvalidPayload, match=what):
                app.jobs.update(job.id, params=params)


def test_the_largest_that_fits(app: Penstock) -> None:
    params = {"n": "x" * (1024 * 1024 - 8)}
    assert app.jobs.get(app.enqueue("work", params).id).params == params
    deep = {"n": nested(63)}
    assert app.jobs.get(app.enqueue("work", deep).id).params == deep


OPTIONS: list[dict[str, Any]] = [
    {"priority": 1.5}, {"priority": "high"}, {"priority": True}, {"priority": 2**31}, {"priority": -(2**31) - 1},
    {"max_attempts": 0}, {"max_attempts": 1001}, {"queue": ""}, {"queue": "x" * 201}, {"queue": "a\nb"},
    {"delay": -5}, {"delay": float("nan")}, {"delay": float("inf")}, {"delay": "soon"}, {"source": "magic"},
    {"dedupe_key": ""}, {"dedupe_key": 5}, {"dedupe_key": "a\0"}, {"dedupe_key": "x" * 501},
    {"correlation_id": "\ud800"}, {"created_by": "a\tb"}, {"source_ref": ["x"]}, {"scheduled_for": "tomorrow"},
    {"scheduled_for": 5}, {"trace": {"a": "\0"}}, {"trace": "abc"},
]  # fmt: skip


def test_options(app: Penstock) -> None:
    with nothing_written(app):
        for options in OPTIONS:
            with pytest.raises(InvalidInput):
                app.enqueue("work", **options)
            with pytest.raises(InvalidInput):
                app.enqueue_many("work", [{}], **({"dedupe_key": None} | options))


def test_naive_datetimes(app: Penstock) -> None:
    naive = datetime(2026, 1, 1)  # noqa: DTZ001
    with nothing_written(app):
        with pytest.raises(NaiveDatetime, match="scheduled_for has no time zone"):
            app.enqueue("work", scheduled_for=naive)
        with pytest.raises(NaiveDatetime, match="created_after"):
            app.jobs.list(created_after=naive)
        with pytest.raises(NaiveDatetime, match="created_before"):
            app.jobs.list(created_before=naive)
        with pytest.raises(NaiveDatetime):
            ManualClock(naive)


def test_unknown_keys_and_tenants(app: Penstock) -> None:
    with nothing_written(app):
        with pytest.raises(UnknownDefinition, match=r"'wrok'.*work"):
            app.enqueue("wrok")
        for key in ("", "a\0b", "x" * 300, None, 5):
            with pytest.raises(InvalidInput):
                app.enqueue(key)  # type: ignore[arg-type]
        for slug in ("nobody", "", "a\0b", "x" * 300, 5):
            with pytest.raises(UnknownTenant):
                app.as_tenant(slug)  # type: ignore[arg-type]
            if slug:
                with pytest.raises(UnknownTenant):
                    app.enqueue("work", tenant=slug)  # type: ignore[arg-type]


def test_ids(app: Penstock) -> None:
    (job,) = numbered(app, [1])
    assert app.jobs.get(str(job.id)) == job
    with nothing_written(app):
        for wrong in ("", "no-uuid", 5, None, "a\0b"):
            for verb in (app.jobs.get, app.jobs.cancel, app.jobs.retry, app.jobs.why, app.jobs.runs, app.groups.get):
                with pytest.raises((InvalidInput, NotFound)):
                    verb(wrong)  # type: ignore[arg-type]


FILTERS: list[dict[str, Any]] = [
    {"status": "done"}, {"status": ["queued", "done"]}, {"limit": 0}, {"limit": 1001}, {"limit": "x"}, {"offset": -1},
    {"correlation_id": "a\0"}, {"key": "a\0"}, {"queue": 5}, {"search": "\0"}, {"search": 5}, {"source": "a\0"},
    {"group_id": "no-uuid"}, {"trigger_id": 7}, {"root_id": "x"}, {"before": "x"}, {"created_after": "today"},
    {"unheard_of": 1},
]  # fmt: skip


def test_filters(app: Penstock) -> None:
    for wrong in FILTERS:
        with pytest.raises(InvalidInput):
            app.jobs.list(**wrong)


def test_claims(app: Penstock) -> None:
    numbered(app, [1])
    with nothing_written(app):
        for worker, limit, options in (("", 1, {}), ("a\0", 1, {}), ("w", -1, {}), ("w", 1001, {}), ("w", True, {})):
            with pytest.raises(InvalidInput):
                app.queue.claim(worker, limit, **options)
        for lease in (-1, float("nan"), float("inf"), "x"):
            with pytest.raises(InvalidInput, match="lease_seconds"):
                app.queue.claim("w", 1, lease_seconds=lease)  # type: ignore[arg-type]
        for names in (["a\0"], [5]):
            assert app.queue.claim("w", 1, queues=names) == []  # type: ignore[arg-type]
