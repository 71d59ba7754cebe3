"""Blobs: what goes in comes out, and bytes from anyone do no harm."""

from __future__ import annotations

import math
import pickle
import zlib
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.pipeline.blob import MAGIC, MAX_DEPTH, pack, unpack
from penstock.pipeline.errors import BlobError

scalars = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.complex_numbers(allow_nan=False) | st.text()
    | st.binary() | st.dates() | st.times() | st.datetimes() | st.timedeltas() | st.uuids()
    | st.decimals(allow_nan=False) | st.datetimes(timezones=st.just(UTC))
)  # fmt: skip
hashable = st.integers() | st.text() | st.binary() | st.dates() | st.tuples(st.integers(), st.text())
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=4) | st.tuples(inner, inner) | st.dictionaries(hashable, inner, max_size=4)
        | st.sets(hashable, max_size=4) | st.frozensets(hashable, max_size=4)
    ),
    max_leaves=20,
)  # fmt: skip


def typed(value: Any) -> Any:
    """A value with the types of all it holds, so that True and 1 differ."""
    if isinstance(value, dict):
        return [(typed(name), typed(item)) for name, item in value.items()]
    if isinstance(value, list | tuple):
        return type(value).__name__, [typed(item) for item in value]
    return type(value).__name__, value


@given(values)
def test_what_goes_in_comes_out(value: Any) -> None:
    assert typed(unpack(pack(value))) == typed(value)


@pytest.mark.parametrize(
    "array",
    [
        np.arange(12.0).reshape(3, 4), np.array(5), np.zeros((0, 3)), np.array(["a", "é"]), np.array([b"x"]), np.eye(3, order="F"),
        np.array([1 + 2j]), np.array([True]), np.array(["2026-01-01"], dtype="M8[D]"), np.arange(6, dtype=">i2")[::2],
        np.array([(1, 2.5, "x")], dtype=[("a", "i4"), ("b", "f8"), ("c", "U3")]), np.array([1, "x", None, [2]], dtype=object),
        np.ones((300, 300), dtype=np.uint8), np.float32(1.5), np.int8(-3), np.bool_(True), np.datetime64("2026-01-01T10"),
    ],
    ids=str,
)  # fmt: skip
def test_arrays(array: Any) -> None:
    again = unpack(pack(array))
    assert type(again) is type(array) and again.dtype == array.dtype and again.shape == array.shape
    assert again.tolist() == array.tolist()
    if isinstance(again, np.ndarray):
        assert again.flags.writeable


def test_nan_zone_and_compression() -> None:
    assert math.isnan(unpack(pack(float("nan"))))
    moment = datetime(2026, 1, 1, tzinfo=timezone(timedelta(hours=-5)))
    assert unpack(pack(moment)).utcoffset() == timedelta(hours=-5)
    assert len(pack(np.zeros(100_000))) < 8000
    for value in (Decimal("NaN"), time(1, 2, 3), date(1, 1, 1), UUID(int=0)):
        assert repr(unpack(pack(value))) == repr(value)


@pytest.mark.parametrize("value", [object(), lambda: 1, type, {"a": [object()]}, np.array([object()]), range(3)])
def test_strange_values_are_refused_by_name(value: Any) -> None:
    with pytest.raises(BlobError, match="cannot hold"):
        pack(value)


def test_depth_is_bounded() -> None:
    deep: Any = []
    for _ in range(MAX_DEPTH + 50):
        deep = [deep]
    with pytest.raises(BlobError, match="nested deeper"):
        pack(deep)
    with pytest.raises(BlobError):
        unpack(MAGIC + bytes([1, 0]) + bytes([8, 1]) * 100_000)


@given(st.binary(max_size=300))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    for blob in (data, MAGIC + bytes([1, 0]) + data):
        try:
            unpack(blob)
        except BlobError:
            pass


@given(values, st.integers(0, 10_000), st.integers(0, 255))
def test_damage_is_refused_or_harmless(value: Any, at: int, byte: int) -> None:
    data = bytearray(pack(value))
    data[at % len(data)] = byte
    try:
        unpack(bytes(data))
    except BlobError:
        pass


def test_pickles_and_bombs_are_refused() -> None:
    with pytest.raises(BlobError, match="not a Penstock blob"):
        unpack(pickle.dumps({"a": 1}))
    bomb = zlib.compress(b"\x00" * 10_000_000)
    with pytest.raises(BlobError, match="should hold 10 bytes"):
        unpack(MAGIC + bytes([1, 1]) + (10).to_bytes(8, "big") + bomb)
    with pytest.raises(BlobError, match="limit"):
        unpack(MAGIC + bytes([1, 1]) + (2**60).to_bytes(8, "big") + bomb)
    with pytest.raises(BlobError, match="version 9"):
        unpack(MAGIC + bytes([9, 0, 0]))


@pytest.mark.parametrize("kind", [b"(1,", b"<i4,(", b"f4,(1"])
def test_an_array_of_no_known_type_is_refused(kind: bytes) -> None:
    data = pack(np.zeros(3, dtype="<i4"))
    assert data.count(b"\x03<i4") == 1
    with pytest.raises(BlobError, match="damaged"):
        unpack(data.replace(b"\x03<i4", bytes([len(kind)]) + kind))
