"""Blobs: values as bytes, in a format of our own that is documented, versioned, and safe to read from anyone.

    b"PSB" version:u8 flags:u8 [raw length:u64 if compressed] value

A value is one tag byte and its body; lengths are unsigned LEB128. Flag 1 says that the value is zlib-compressed.
`docs/pipelines/blobs.md` has the whole table. Reading builds only the types named there: no code, no classes, no pickle.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID

from penstock.pipeline import extras
from penstock.pipeline.errors import BlobError

MAGIC = b"PSB"
VERSION = 1
COMPRESSED = 1
COMPRESS_FROM = 1000
MAX_DEPTH = 100
MAX_BYTES = 2**31

NONE, TRUE, FALSE, INT, FLOAT, COMPLEX, STR, BYTES = range(8)
LIST, TUPLE, SET, FROZENSET, DICT = range(8, 13)
DATE, TIME, DATETIME, DELTA, DECIMAL, UUID_TAG = range(13, 19)
ARRAY, SCALAR, OBJECTS = range(19, 22)

_CONTAINERS = {LIST: list, TUPLE: tuple, SET: set, FROZENSET: frozenset}
_TAGS: dict[type, int] = {kind: tag for tag, kind in _CONTAINERS.items()}


def pack(value: Any) -> bytes:
    """Turn a value into bytes.

    >>> unpack(pack({"a": [1, 2.5, None]}))
    {'a': [1, 2.5, None]}
    """
    out = bytearray()
    _write(out, value, "value", 0)
    raw = bytes(out)
    if len(raw) >= COMPRESS_FROM:
        squeezed = zlib.compress(raw, 1)
        if len(squeezed) + 8 < len(raw):
            return MAGIC + bytes([VERSION, COMPRESSED]) + struct.pack(">Q", len(raw)) + squeezed
    return MAGIC + bytes([VERSION, 0]) + raw


def unpack(data: bytes) -> Any:
    """Read what `pack` wrote. Anything else is refused with `BlobError`."""
    data = bytes(data)
    if len(data) < 5 or data[:3] != MAGIC:
        raise BlobError("These bytes are not a Penstock blob: they do not begin with 'PSB'.")
    if data[3] != VERSION or data[4] > COMPRESSED:
        raise BlobError(
            f"This blob has format version {data[3]}, flags {data[4]}; this Penstock reads version {VERSION}."
        )
    body = _inflate(data[5:]) if data[4] == COMPRESSED else data[5:]
    reader = _Reader(body)
    try:
        value = _read(reader, 0)
    except BlobError:
        raise
    except (ValueError, TypeError, OverflowError, ArithmeticError, struct.error, RecursionError, SyntaxError) as error:
        raise BlobError(f"This blob is damaged: {error}.") from error
    if reader.at != len(body):
        raise BlobError(f"This blob is damaged: {len(body) - reader.at} bytes follow its value.")
    return value


def _inflate(data: bytes) -> bytes:
    if len(data) < 8:
        raise BlobError("This blob is damaged: it ends before its length.")
    (length,) = struct.unpack(">Q", data[:8])
    if length > MAX_BYTES:
        raise BlobError(f"This blob claims {length} bytes; the limit is {MAX_BYTES}.")
    try:
        raw = zlib.decompressobj().decompress(data[8:], length + 1)
    except zlib.error as error:
        raise BlobError(f"This blob is damaged: {error}.") from error
    if len(raw) != length:
        raise BlobError(f"This blob is damaged: it should hold {length} bytes, not {len(raw)}.")
    return raw


def _size(out: bytearray, number: int) -> None:
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)


def _text(out: bytearray, tag: int, body: bytes) -> None:
    out.append(tag)
    _size(out, len(body))
    out += body


def _write(out: bytearray, value: Any, path: str, depth: int) -> None:
    if depth > MAX_DEPTH:
        raise BlobError(f"{path} is nested deeper than {MAX_DEPTH} levels.")
    kind = type(value)
    if value is None:
        out.append(NONE)
    elif kind is bool:
        out.append(TRUE if value else FALSE)
    elif kind.__module__ == "numpy":
        _write_numpy(out, value, path, depth)
    elif isinstance(value, int):
        _text(out, INT, int(value).to_bytes((int(value).bit_length() + 8) // 8, "big", signed=True))
    elif isinstance(value, float):
        out += bytes([FLOAT]) + struct.pack(">d", value)
    elif kind is complex:
        out += bytes([COMPLEX]) + struct.pack(">dd", value.real, value.imag)
    elif isinstance(value, str):
        _text(out, STR, value.encode("utf-8", "surrogatepass"))
    elif isinstance(value, bytes | bytearray | memoryview):
        _text(out, BYTES, bytes(value))
    elif isinstance(value, dict):
        out.append(DICT)
        _size(out, len(value))
        for name, item in value.items():
            _write(out, name, f"{path} key {name!r}", depth + 1)
            _write(out, item, f"{path}[{name!r}]", depth + 1)
    elif isinstance(value, list | tuple | set | frozenset):
        out.append(next(tag for base, tag in _TAGS.items() if isinstance(value, base)))
        _size(out, len(value))
        for number, item in enumerate(value):
            _write(out, item, f"{path}[{number}]", depth + 1)
    else:
        _write_moment(out, value, path)


def _write_moment(out: bytearray, value: Any, path: str) -> None:
    if isinstance(value, datetime):
        _text(out, DATETIME, value.isoformat().encode())
    elif isinstance(value, date):
        _text(out, DATE, value.isoformat().encode())
    elif isinstance(value, time):
        _text(out, TIME, value.isoformat().encode())
    elif isinstance(value, timedelta):
        out += bytes([DELTA]) + struct.pack(">iii", value.days, value.seconds, value.microseconds)
    elif isinstance(value, Decimal):
        _text(out, DECIMAL, str(value).encode())
    elif isinstance(value, UUID):
        out += bytes([UUID_TAG]) + value.bytes
    else:
        name = f"{type(value).__module__}.{type(value).__qualname__}"
        raise BlobError(
            f"{path} is a {name}, which a blob cannot hold. Use numbers, text, bytes, dates, lists, tuples, sets, dicts "
            "and numpy arrays; a DataFrame goes as frame.to_dict('list')."
        )


def _write_numpy(out: bytearray, value: Any, path: str, depth: int) -> None:
    np = extras.numpy()
    if not isinstance(value, np.ndarray | np.generic):
        raise BlobError(f"{path} is a numpy {type(value).__name__}, which a blob cannot hold.")
    array = np.asarray(value)
    if array.dtype.hasobject:
        if array.dtype != np.dtype(object):
            raise BlobError(f"{path} is an array with objects inside records, which a blob cannot hold.")
        out.append(OBJECTS)
        _write(out, array.shape, path, depth + 1)
        for number, item in enumerate(array.ravel(order="C").tolist()):
            _write(out, item, f"{path}.flat[{number}]", depth + 1)
        return
    out.append(ARRAY if isinstance(value, np.ndarray) else SCALAR)
    descr: Any = array.dtype.descr if array.dtype.names else array.dtype.str
    _write(out, descr, path, depth + 1)
    _write(out, array.shape, path, depth + 1)
    _write(out, array.tobytes(order="C"), path, depth + 1)


class _Reader:
    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def take(self, count: int) -> bytes:
        end = self.at + count
        if end > len(self.data):
            raise BlobError("This blob is damaged: it ends in the middle of a value.")
        piece = self.data[self.at : end]
        self.at = end
        return piece

    def size(self) -> int:
        number = shift = 0
        while True:
            byte = self.take(1)[0]
            number |= (byte & 127) << shift
            if byte < 128:
                return number
            shift += 7
            if shift > 56:
                raise BlobError("This blob is damaged: a length is out of range.")

    def items(self) -> int:
        """How many items follow; each takes a byte at least, so that a lie cannot make us reserve memory."""
        number = self.size()
        if number > len(self.data) - self.at:
            raise BlobError("This blob is damaged: it claims more items than it has bytes.")
        return number


def _read(reader: _Reader, depth: int) -> Any:
    if depth > MAX_DEPTH + 1:
        raise BlobError(f"This blob is nested deeper than {MAX_DEPTH} levels.")
    tag = reader.take(1)[0]
    if tag in (NONE, TRUE, FALSE):
        return {NONE: None, TRUE: True, FALSE: False}[tag]
    if tag == FLOAT:
        return struct.unpack(">d", reader.take(8))[0]
    if tag == COMPLEX:
        return complex(*struct.unpack(">dd", reader.take(16)))
    if tag == DELTA:
        days, seconds, micros = struct.unpack(">iii", reader.take(12))
        return timedelta(days, seconds, micros)
    if tag == UUID_TAG:
        return UUID(bytes=reader.take(16))
    if tag in _CONTAINERS:
        return _CONTAINERS[tag](_read(reader, depth + 1) for _ in range(reader.items()))
    if tag == DICT:
        return {_read(reader, depth + 1): _read(reader, depth + 1) for _ in range(reader.items())}
    if tag in (ARRAY, SCALAR, OBJECTS):
        return _read_numpy(reader, tag, depth)
    return _read_text(tag, reader)


def _read_text(tag: int, reader: _Reader) -> Any:
    if tag not in (INT, STR, BYTES, DATE, TIME, DATETIME, DECIMAL):
        raise BlobError(f"This blob is damaged, or from a newer Penstock: it holds the unknown tag {tag}.")
    body = reader.take(reader.size())
    if tag == BYTES:
        return body
    if tag == INT:
        return int.from_bytes(body, "big", signed=True)
    text = body.decode("utf-8", "surrogatepass")
    readers: dict[int, Callable[[str], Any]] = {
        STR: str,
        DATE: date.fromisoformat,
        TIME: time.fromisoformat,
        DATETIME: _moment,
        DECIMAL: Decimal,
    }
    return readers[tag](text)


def _moment(text: str) -> datetime:
    moment = datetime.fromisoformat(text)
    return moment.replace(tzinfo=timezone(moment.utcoffset() or timedelta())) if moment.tzinfo else moment


def _read_numpy(reader: _Reader, tag: int, depth: int) -> Any:
    np = extras.numpy("This blob holds an array, and reading it")
    descr = None if tag == OBJECTS else _read(reader, depth + 1)
    shape = _read(reader, depth + 1)
    if not isinstance(shape, tuple) or not all(type(side) is int and side >= 0 for side in shape):
        raise BlobError("This blob is damaged: an array without a shape.")
    count = 1
    for side in shape:
        count *= side
    if tag == OBJECTS:
        if count > len(reader.data) - reader.at:
            raise BlobError("This blob is damaged: it claims more items than it has bytes.")
        flat = np.empty(count, dtype=object)
        for number in range(count):
            flat[number] = _read(reader, depth + 1)
        return flat.reshape(shape)
    dtype = np.dtype(descr)
    body = _read(reader, depth + 1)
    if dtype.hasobject or not isinstance(body, bytes) or len(body) != count * dtype.itemsize:
        raise BlobError("This blob is damaged: an array's bytes do not fit its shape.")
    array = np.frombuffer(body, dtype=dtype).reshape(shape).copy()
    return array if tag == ARRAY else array[()]
