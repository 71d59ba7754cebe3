"""Secrets are masked whatever their spelling, and wherever a chunk happens to end."""

from __future__ import annotations

import base64
import itertools
import json
import time
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.core.errors import InvalidInput
from penstock.core.redact import MASK, Redactor, is_secret_name, secrets_in

SECRET = 'p@ss "wörd"/+&x'


@pytest.mark.parametrize(
    "name",
    ["password", "DB_PASSWORD", "apiKey", "api-key", "x-api-key", "Authorization", "githubToken", "dbpassword",
     "client_secret", "aws_secret_access_key", "private_key", "credentials", "refresh_token", "Set-Cookie",
     "passWord", "PassWord", "userPassWord", "pass", "db_pass", "dbPass", "pw", "pass_phrase", "passcode", "auth", "proxy-auth",
     "bearer", "jwt", "otp", "pin", "card_pin", "ssh_key", "sshKey", "secretkey", "secret-key", "privatekeypem", "sessionid",
     "session_id", "sessionId", "signature", "GITHUB_PAT", "connection_string", "connectionString", "DATABASE_URL"],
)  # fmt: skip
def test_names_of_secrets(name: str) -> None:
    assert is_secret_name(name)


@pytest.mark.parametrize(
    "name",
    ["path", "key", "monkey", "secretary", "author", "tokenizer", "image_id", "passenger",
     "bypass", "pass_count", "spin", "pattern", "author_id", "auth_type", "format", "compat", "opinion", "pinned", "sessions",
     "spw", "laptop", "database", "url"],
)  # fmt: skip
def test_names_of_no_secrets(name: str) -> None:
    assert not is_secret_name(name)


def test_json_views_hide_what_stands_under_secret_names() -> None:
    view = Redactor().redact_json(
        {
            "a": [{"token": "abc", "n": 1}],
            "credentials": {"user": "u", "deep": [1]},
            "password": None,
            "max_tokens": 512,
            "pin": 1234,
            "env": [{"name": "DB_PASSWORD", "value": "abc"}, {"name": "HOME", "value": "/root"}],
            "headers": [["Authorization", "abc"], ["Accept", "text/html"]],
            "url": "postgresql://me:hunter2@db/x",
        }
    )
    assert view == {
        "a": [{"token": MASK, "n": 1}],
        "credentials": MASK,
        "password": None,
        "max_tokens": 512,
        "pin": MASK,
        "env": [{"name": "DB_PASSWORD", "value": MASK}, {"name": "HOME", "value": "/root"}],
        "headers": [["Authorization", MASK], ["Accept", "text/html"]],
        "url": "postgresql://me:***@db/x",
    }


@pytest.mark.parametrize(
    "value",
    ["pst_abcdefghijklmnopqrstuvwxyz", "ghp_0123456789abcdefghijABCDEFGHIJ012345", "github_pat_11ABCDEFG0123456789_abc",
     "AKIAIOSFODNN7EXAMPLE", "xoxb-123456789012-abcdefghij", "sk_live_0123456789abcdef",
     "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl"],
)  # fmt: skip
def test_a_value_that_tells_what_it_is_is_masked(value: str) -> None:
    assert Redactor().redact_text(f"it is {value}, said the log") == f"it is {MASK}, said the log"
    assert Redactor().redact_json({"note": value}) == {"note": MASK}


PEM = "-----BEGIN RSA PRIVATE KEY-----\n" + "MIIEowIBAAKCAQEA7\n" * 25 + "-----END RSA PRIVATE KEY-----"


@given(st.integers(1, 200))
def test_a_private_key_is_masked_however_it_is_cut(size: int) -> None:
    text = f"before\n{PEM}\nafter\n".encode()
    stream = Redactor().stream()
    shown = b"".join(stream.feed(text[at : at + size]) for at in range(0, len(text), size)) + stream.flush()
    assert b"MIIE" not in shown
    assert shown.startswith(b"before\n") and shown.endswith(b"after\n")


@pytest.mark.parametrize(
    "spell",
    [
        lambda s: s.encode().hex(),
        lambda s: s.encode().hex().upper(),
        lambda s: base64.b32encode(s.encode()).decode().rstrip("="),
        lambda s: s.upper(),
        lambda s: s.lower(),
        lambda s: " ".join(s),
        lambda s: s[::-1],
        lambda s: base64.b64encode(base64.b64encode(s.encode())).decode().rstrip("="),
        lambda s: s.encode("utf-16-le").decode("latin-1"),
        lambda s: s.encode("utf-16-be").decode("latin-1"),
        lambda s: s.encode("utf-16-le").decode("latin-1").replace("\0", "\ufffd"),
    ],
)
def test_a_secret_is_known_in_other_spellings(spell) -> None:  # type: ignore[no-untyped-def]
    secret = "Correct Horse 42"
    shown = Redactor([secret]).redact_text(f"x {spell(secret)} y")
    assert MASK in shown and len(shown) <= len("x *** y") + 2, shown
    stream = Redactor([secret]).stream()
    text = f"x {spell(secret)} y\n".encode()
    cut = b"".join(stream.feed(bytes([byte])) for byte in text) + stream.flush()
    assert b"***" in cut and len(cut) <= len("x *** y\n") + 4


@pytest.mark.parametrize("value", ["https://hooks.slack.com/services/T000/B000/XXXXXXXXXXXXXXXX", "https://u:pw@h/x"])
def test_a_url_that_holds_a_secret_keeps_its_host(value: str) -> None:
    shown = Redactor().redact_json({"note": value})["note"]
    assert "***" in shown and "XXXX" not in shown and ":pw@" not in shown and shown.startswith("https://")


def test_a_whole_value_is_known_even_if_it_is_short() -> None:
    mask = Redactor(["1234", "271828"])
    assert mask.redact_json({"a": "1234", "b": "12345", "c": 271828, "d": 7, "e": True}) == {
        "a": MASK, "b": "12345", "c": MASK, "d": 7, "e": True,
    }  # fmt: skip
    assert secrets_in({"pin": 271828, "max_tokens": 271828, "password": 12}) == ["271828"]


def test_secrets_in_finds_pairs() -> None:
    assert secrets_in({"env": [{"name": "TOKEN", "value": "one"}], "headers": [["Cookie", "two"]]}) == ["one", "two"]


def test_secrets_in_finds_texts_under_secret_names() -> None:
    assert secrets_in({"a": {"password": "one"}, "tokens": ["two", 3], "b": "no"}) == ["one", "two"]


@pytest.mark.parametrize("before", ["", "x", "xy", "xyz"])
@pytest.mark.parametrize(
    "spell",
    [
        lambda s: s,
        lambda s: quote(s, safe=""),
        quote_plus,
        lambda s: json.dumps(s)[1:-1],
        lambda s: json.dumps(s, ensure_ascii=False)[1:-1],
    ],
)
def test_every_form_is_masked(before: str, spell) -> None:  # type: ignore[no-untyped-def]
    assert Redactor([SECRET]).redact_text(f"{before}{spell(SECRET)}|") == f"{before}{MASK}|"


@pytest.mark.parametrize("before", ["", "x", "xy", "user:"])
@pytest.mark.parametrize("after", ["", "a", "ab", "abc"])
@pytest.mark.parametrize("encode", [base64.b64encode, base64.urlsafe_b64encode])
def test_base64_is_masked_at_any_offset(before: str, after: str, encode) -> None:  # type: ignore[no-untyped-def]
    secret = "correct horse??>>~~"
    encoded = encode((before + secret + after).encode()).decode()
    masked = Redactor([secret]).redact_text(encoded)
    assert MASK in masked
    assert len(masked) <= len(MASK) + 12, "only the neighbours may be left"


def test_a_short_secret_does_not_mask_everything() -> None:
    assert Redactor(["a", "abcde"]).redact_text("abcde banana") == "abcde banana"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("amqp://u:pa:ss@h/", "amqp://u:***@h/"),
        ("redis://:secret@h", "redis://:***@h"),
        ("Authorization: Bearer abc.def-123", "Authorization: Bearer ***"),
        ('{"api_key": "abcdef123"}', '{"api_key": "***"}'),
        ("DB_PASSWORD=hunter22 next", "DB_PASSWORD=*** next"),
        ("tokens: 1234567 read", "tokens: 1234567 read"),
        ("see http://host:8080/a@b", "see http://host:8080/a@b"),
    ],
)
def test_patterns_that_everybody_wants(text: str, shown: str) -> None:
    assert Redactor().redact_text(text) == shown


def test_configured_patterns_and_their_errors() -> None:
    redactor = Redactor(patterns=[r"ghp_[A-Za-z0-9]{8,}", r"pin (?P<secret>\d{4})"])
    assert redactor.redact_text("ghp_abcdefgh1 pin 1234") == "*** pin ***"
    with pytest.raises(InvalidInput, match=r"'\(' is not a regular expression"):
        Redactor(patterns=["("])


def streamed(redactor: Redactor, data: bytes, cuts: list[int]) -> bytes:
    stream = redactor.stream()
    edges = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    return b"".join(stream.feed(data[a:b]) for a, b in itertools.pairwise(edges)) + stream.flush()


SECRETS = ["ababab", "abababcc", "line one\nline two", SECRET]


@given(
    pieces=st.lists(st.sampled_from([*SECRETS, "ab", "c", "\n", "line one\n", "x://u:pw@h ", "p@ss "]), max_size=12),
    cuts=st.lists(st.integers(0, 200), max_size=8),
)
@settings(max_examples=400, deadline=None)
def test_where_chunks_end_changes_nothing(pieces: list[str], cuts: list[int]) -> None:
    data = "".join(pieces).encode()
    redactor = Redactor(SECRETS)
    assert streamed(redactor, data, cuts) == redactor.mask(data)


def test_byte_by_byte_nothing_leaks_on_the_way() -> None:
    stream = Redactor(["s3cr3t-value"]).stream()
    shown = b""
    for byte in b"id=1 s3cr3t-value end\n" * 3:
        shown += stream.feed(bytes([byte]))
        assert b"s3cr3t" not in shown
    assert shown + stream.flush() == b"id=1 *** end\n" * 3


def test_whole_lines_are_shown_at_once() -> None:
    stream = Redactor(["s3cr3t-value"]).stream()
    assert stream.feed(b"step 1 done\nstep 2") == b"step 1 done\n"


def test_a_flood_without_newlines_is_passed_on_in_linear_time() -> None:
    stream = Redactor(["s3cr3t-value"], [r"ghp_\w{8}"]).stream()
    started = time.thread_time()
    passed = sum(len(stream.feed(b"a" * 65536)) for _ in range(160)) + len(stream.flush())
    assert passed == 160 * 65536
    assert time.thread_time() - started < 5
