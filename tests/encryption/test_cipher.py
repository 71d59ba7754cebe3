"""The cipher by itself: what opens, what does not, and what is told of it."""

from __future__ import annotations

import base64
import pickle
import sys

import pytest

from penstock import KeyMissing, KeyRing
from penstock.core.cipher import is_sealed, parts, readable
from penstock.core.errors import CiphertextInvalid, InvalidInput
from penstock.core.ids import new_id
from penstock.queue.keyring import from_environment
from penstock.store.sealing import PLAIN, Codec, params_of, result_of
from tests.encryption.support import K1, K2, OTHER_K1

AT = params_of(new_id(), new_id())


def test_the_first_key_seals_and_all_open() -> None:
    old, both = Codec(KeyRing.parse(K1)), Codec(KeyRing.parse(f"{K2},{K1}"))
    for codec, key_id in ((old, "k1"), (both, "k2")):
        sealed = codec.seal({"a": "grüße"}, AT)
        assert is_sealed(sealed)
        assert parts(sealed["$enc"])[0] == key_id
        assert both.open(sealed, lambda: AT) == {"a": "grüße"}


def test_the_same_value_is_never_sealed_the_same_way() -> None:
    codec = Codec(KeyRing.parse(K1))
    assert len({codec.seal({"a": 1}, AT)["$enc"] for _ in range(100)}) == 100


@pytest.mark.parametrize("value", [None, {}])
def test_nothing_is_left_as_it_is(value: object) -> None:
    assert Codec(KeyRing.parse(K1)).seal(value, AT) == value


def test_every_kind_of_text_and_document_comes_back() -> None:
    codec = Codec(KeyRing.parse(K1))
    for document in (1, 1.5, "text", [1, [2]], False, {"$enc": "v1:k1:not sealed"}, {"a": {"b": None}}):
        assert codec.open(codec.seal(document, AT), lambda: AT) == document
    for text in ("x", "a\nb", "\U0001f600", "$enc:v1:k1:xxxx"):
        assert codec.open_text(codec.seal_text(text, AT), lambda: AT) == text


def test_a_value_opens_only_where_it_belongs() -> None:
    codec = Codec(KeyRing.parse(K1))
    sealed = codec.seal({"a": 1}, AT)
    elsewhere = (
        params_of(new_id(), AT.row),  # another tenant
        params_of(AT.tenant_id or new_id(), new_id()),  # another row
        result_of(AT.tenant_id or new_id(), AT.row),  # another column
    )
    for place in elsewhere:
        with pytest.raises(CiphertextInvalid):
            readable(codec.open(sealed, lambda place=place: place))  # type: ignore[misc]


def test_a_changed_value_is_told_apart_from_a_missing_key() -> None:
    codec = Codec(KeyRing.parse(K1))
    sealed = codec.seal({"a": 1}, AT)["$enc"]
    for changed in (sealed[:-8] + "AAAAAAA=", sealed[:20], sealed + "AAAA", "v1:k1:", "v1:nonsense", "v2:k1:abcd"):
        with pytest.raises(CiphertextInvalid):
            readable(
                codec.open({"$enc": changed}, lambda: AT) if changed.startswith("v1:") else codec._opened(changed, AT)
            )
    with pytest.raises(KeyMissing, match="key k1, which this process does not have"):
        readable(Codec(KeyRing.parse(K2)).open({"$enc": sealed}, lambda: AT))
    with pytest.raises(KeyMissing, match="another key that is also called k1"):
        readable(Codec(KeyRing.parse(OTHER_K1)).open({"$enc": sealed}, lambda: AT))
    with pytest.raises(KeyMissing):
        readable(PLAIN.open({"$enc": sealed}, lambda: AT))


def test_what_cannot_be_read_is_shown_with_its_reason() -> None:
    sealed = Codec(KeyRing.parse(K1)).seal_text("hello", AT)
    assert PLAIN.open_text(sealed, lambda: AT) == "(encrypted with key k1, which this process does not have)"


@pytest.mark.parametrize(
    "text",
    ["", "k1", "k1:short", "k1:" + "A" * 50, f"{K1},{OTHER_K1}", K1.replace("k1", "a key"), K1[3:], ":" + K1[3:]],
)
def test_a_ring_that_cannot_be_read_is_refused_without_showing_it(text: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        KeyRing.parse(text)
    assert "AAECAwQF" not in str(refused.value)


def test_a_ring_keeps_its_keys_to_itself() -> None:
    ring = KeyRing.parse(f"# the newest first\n{K2}\n{K1}  # from last year\n")
    assert repr(ring) == "KeyRing(k2, k1)"
    assert ring.ids == ("k2", "k1")
    with pytest.raises(TypeError):
        pickle.dumps(ring)


def test_a_generated_key_is_new_and_fits() -> None:
    texts = {KeyRing.generate("k9") for _ in range(20)}
    assert len(texts) == 20
    assert all(len(base64.b64decode(text.partition(":")[2])) == 32 for text in texts)
    assert KeyRing.parse(texts.pop()).first == "k9"


def test_keys_come_from_a_variable_or_a_file(tmp_path: object) -> None:
    from pathlib import Path

    file = Path(str(tmp_path)) / "keys"
    file.write_text(f"{K2}\n{K1}\n")
    assert from_environment({}) is None
    assert repr(from_environment({"PENSTOCK_KEYS": K1})) == "KeyRing(k1)"
    assert repr(from_environment({"PENSTOCK_KEYS_FILE": str(file)})) == "KeyRing(k2, k1)"
    with pytest.raises(InvalidInput, match="Both"):
        from_environment({"PENSTOCK_KEYS": K1, "PENSTOCK_KEYS_FILE": str(file)})
    with pytest.raises(InvalidInput, match="cannot be read"):
        from_environment({"PENSTOCK_KEYS_FILE": str(file) + "x"})
    file.write_text("\n")
    with pytest.raises(InvalidInput, match="no keys"):
        from_environment({"PENSTOCK_KEYS_FILE": str(file)})


def test_without_the_library_keys_are_refused_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.ciphers.aead", None)
    with pytest.raises(InvalidInput, match=r"penstock\[encryption\]"):
        KeyRing.parse(K1)
