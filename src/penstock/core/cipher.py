"""Encryption at rest: the operator's keys, and values sealed with them.

A sealed value is `v1:<key id>:<check><nonce, ciphertext and tag in base64>`. In a JSON column it is the only member of an object,
`{"$enc": "v1:k1:…"}`; in a text column it stands after `$enc:`. Both are valid where they are, so sealed and plain values live side
by side in the same columns.

The cipher is AES-256-GCM. What a value belongs to (its column, its tenant and its row) is authenticated with it, so a sealed value
that is copied to another place does not open there. Nobody encrypts with the operator's key itself: each value takes a key that is
derived from it for the first 24 bits of its row's id. Those are a span of 4.7 hours for the ids that Penstock gives out, so that
random nonces of 96 bits stay far from the number at which two of them could be equal, however many jobs a database sees.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any

from penstock.core.errors import CiphertextInvalid, InvalidInput, KeyMissing

MEMBER = "$enc"
"""The one member of the object that stands for a sealed JSON document."""
TEXT_MARK = "$enc:"
"""What a sealed text begins with."""
VERSION = "v1:"
KEY_BYTES = 32
NONCE_BYTES = 12
CHECK_CHARS = 4
"""How many characters of a sealed value say which key it is, beside the id: two keys may have been given the same id."""
BUCKET_BYTES = 3

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,31}\Z")


class KeyRing:
    """The operator's keys by id. The first one seals; all of them open.

    >>> KeyRing({"k2": bytes(32), "k1": bytes([1]) * 32})
    KeyRing(k2, k1)
    """

    __slots__ = ("_checks", "_keys", "_subkey", "first")

    def __init__(self, keys: Mapping[str, bytes] | Iterable[tuple[str, bytes]]) -> None:
        pairs = list(keys.items() if isinstance(keys, Mapping) else keys)
        if not pairs:
            raise InvalidInput("A key ring needs at least one key. `penstock keys generate` creates one.")
        for key_id, key in pairs:
            if not isinstance(key_id, str) or not _ID.match(key_id):
                raise InvalidInput(
                    f"The key id {str(key_id)[:40]!r} is not valid. Use up to 32 letters, digits, dots, dashes and underscores."
                )
            if not isinstance(key, bytes) or len(key) != KEY_BYTES:
                raise InvalidInput(
                    f"The key {key_id!r} is not {KEY_BYTES} bytes long. `penstock keys generate` creates one."
                )
        self._keys = dict(pairs)
        if len(self._keys) < len(pairs):
            raise InvalidInput("Two keys of the ring have the same id. Give each key an id of its own.")
        self.first: str = pairs[0][0]
        self._checks = {key_id: _check_of(key) for key_id, key in pairs}
        aead, keys_by_id = _aead(), self._keys

        @lru_cache(maxsize=4096)
        def subkey(key_id: str, bucket: bytes) -> Any:
            return aead(hmac.digest(keys_by_id[key_id], b"penstock v1\0" + bucket, "sha256"))

        self._subkey = subkey

    @classmethod
    def parse(cls, text: str) -> KeyRing:
        """Read keys as `penstock keys generate` writes them: `id:base64`, separated by commas, spaces or lines; `#` begins a
        comment."""
        pairs: list[tuple[str, bytes]] = []
        for entry in _entries(text):
            key_id, colon, encoded = entry.partition(":")
            try:
                key = base64.b64decode(encoded.replace("-", "+").replace("_", "/"), validate=True)
            except (binascii.Error, ValueError):
                key = b""
            if not colon or len(key) != KEY_BYTES:
                # Never the entry itself: it may be a key whose id was forgotten.
                raise InvalidInput(
                    f"Key number {len(pairs) + 1} cannot be read. Write each key as id:base64, with {KEY_BYTES} bytes in base64, as "
                    "`penstock keys generate` prints it."
                )
            pairs.append((key_id, key))
        return cls(pairs)

    @staticmethod
    def generate(key_id: str) -> str:
        """Return a new random key as `id:base64`."""
        key = os.urandom(KEY_BYTES)
        KeyRing({key_id: key})
        return f"{key_id}:{base64.b64encode(key).decode()}"

    @property
    def ids(self) -> tuple[str, ...]:
        return tuple(self._keys)

    @property
    def prefix(self) -> str:
        """What every value begins with that the first key has sealed."""
        return f"{VERSION}{self.first}:{self._checks[self.first]}"

    def has(self, key_id: str, check: str) -> bool:
        """Return whether this very key is in the ring, and not just one with its id."""
        return self._checks.get(key_id) == check

    def seal(self, plain: bytes, context: bytes, bucket: bytes) -> str:
        nonce = os.urandom(NONCE_BYTES)
        sealed = nonce + self._subkey(self.first, bucket).encrypt(nonce, plain, context)
        return f"{self.prefix}{binascii.b2a_base64(sealed, newline=False).decode()}"

    def open(self, sealed: str, context: bytes, bucket: bytes) -> bytes:
        key_id, check, encoded = parts(sealed)
        if key_id not in self._keys:
            raise KeyMissing(key_id)
        if self._checks[key_id] != check:
            raise KeyMissing(key_id, same_id=True)
        try:
            raw = binascii.a2b_base64(encoded, strict_mode=True)
            opened: bytes = self._subkey(key_id, bucket).decrypt(raw[:NONCE_BYTES], raw[NONCE_BYTES:], context)
        except Exception as error:  # the library's InvalidTag, base64 that is none, or too little of it
            raise CiphertextInvalid(key_id) from error
        return opened

    def __repr__(self) -> str:
        return f"KeyRing({', '.join(self._keys)})"

    def __iter__(self) -> Iterator[str]:
        return iter(self._keys)

    def __reduce__(self) -> Any:
        raise TypeError("A key ring is not to be pickled: keys stay in the process that was given them.")


class Unreadable(dict[str, Any]):
    """Stands where a document would be that cannot be read here, and says why. It can be shown, and must not be used."""

    def __init__(self, error: KeyMissing | CiphertextInvalid) -> None:
        super().__init__({"$unreadable": error.short})
        self.error = error


def readable(value: Any) -> Any:
    """Return the value, or raise the error of one that cannot be read here."""
    if type(value) is Unreadable:
        raise value.error
    return value


def parts(sealed: str) -> tuple[str, str, str]:
    """Return the key's id, its check and the rest of a sealed value."""
    version, _, rest = sealed.partition(":")
    key_id, colon, encoded = rest.partition(":")
    if f"{version}:" != VERSION or not colon or not _ID.match(key_id) or len(encoded) < CHECK_CHARS:
        raise CiphertextInvalid("unknown")
    return key_id, encoded[:CHECK_CHARS], encoded[CHECK_CHARS:]


def is_sealed(document: Any) -> bool:
    """Return whether a JSON document stands for a sealed one."""
    if type(document) is not dict or len(document) != 1:
        return False
    sealed = document.get(MEMBER)
    return isinstance(sealed, str) and sealed.startswith(VERSION)


def is_sealed_text(text: Any) -> bool:
    return isinstance(text, str) and text.startswith(TEXT_MARK + VERSION)


def _entries(text: str) -> Iterator[str]:
    for line in text.splitlines():
        yield from line.partition("#")[0].replace(",", " ").split()


def _check_of(key: bytes) -> str:
    return base64.b64encode(hmac.digest(key, b"penstock key check", "sha256")[:3]).decode()


def _aead() -> Any:
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # an extra: most installations have no keys
    except ImportError as error:
        raise InvalidInput(
            "Keys for encryption at rest are configured, but the library for it is not installed. Install it with: "
            "pip install 'penstock[encryption]'"
        ) from error
    return AESGCM
