from __future__ import annotations

from datetime import UTC, datetime, timedelta
from ipaddress import ip_address

import pytest

from penstock.core.errors import InvalidInput
from penstock.core.webhook import Egress, headers, new_secret, refuse_address, sign, verify

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
MESSAGE = "msg_p5jXN8AQM9LWM0D4loKWxJek"
MOMENT = datetime.fromtimestamp(1614265330, UTC)
BODY = b'{"test": 2432232314}'


def test_the_published_vector() -> None:
    assert sign(SECRET, MESSAGE, 1614265330, BODY) == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
    assert sign(SECRET.removeprefix("whsec_"), MESSAGE, 1614265330, BODY) == sign(SECRET, MESSAGE, 1614265330, BODY)


def test_both_secrets_sign_while_one_replaces_the_other() -> None:
    new, old = new_secret(), new_secret()
    sent = headers([new, old], MESSAGE, MOMENT, BODY)
    assert verify(new, sent, BODY, MOMENT)
    assert verify(old, sent, BODY, MOMENT)
    assert not verify(new_secret(), sent, BODY, MOMENT)
    after = headers([new], MESSAGE, MOMENT, BODY)
    assert not verify(old, after, BODY, MOMENT)


@pytest.mark.parametrize(
    "change",
    [
        {"webhook-id": "msg_other"},
        {"webhook-timestamp": "1614265331"},
        {"webhook-timestamp": "soon"},
        {"webhook-signature": "v1,AAAA"},
        {"webhook-signature": "v1a,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="},
        {"webhook-signature": "g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="},
        {"webhook-signature": ""},
    ],
)
def test_a_changed_message_does_not_verify(change: dict[str, str]) -> None:
    sent = headers([SECRET], MESSAGE, MOMENT, BODY)
    assert verify(SECRET, sent, BODY, MOMENT)
    assert not verify(SECRET, sent | change, BODY, MOMENT)
    assert not verify(SECRET, sent, BODY + b" ", MOMENT)


def test_an_old_message_does_not_verify() -> None:
    sent = headers([SECRET], MESSAGE, MOMENT, BODY)
    assert verify(SECRET, sent, BODY, MOMENT + timedelta(minutes=5))
    assert not verify(SECRET, sent, BODY, MOMENT + timedelta(minutes=5, seconds=1))
    assert not verify(SECRET, sent, BODY, MOMENT - timedelta(minutes=5, seconds=1))


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "0.0.0.0",
        "10.1.2.3",
        "172.16.0.1",
        "172.31.255.255",
        "192.168.1.1",
        "169.254.169.254",
        "100.64.0.1",
        "192.0.0.8",
        "192.0.2.1",
        "198.18.0.1",
        "198.51.100.7",
        "203.0.113.9",
        "224.0.0.1",
        "239.255.255.255",
        "240.0.0.1",
        "255.255.255.255",
        "192.88.99.1",
        "::1",
        "::",
        "::127.0.0.1",
        "::ffff:127.0.0.1",
        "::ffff:7f00:1",
        "::ffff:169.254.169.254",
        "64:ff9b::a9fe:a9fe",
        "64:ff9b:1::1",
        "2002:7f00:1::",
        "2001::1",
        "2001:db8::1",
        "3fff::1",
        "fc00::1",
        "fd12::1",
        "fe80::1",
        "fec0::1",
        "ff02::1",
        "100::1",
    ],
)
def test_addresses_that_are_not_public_are_refused(address: str) -> None:
    assert refuse_address(address)
    assert Egress().refusal(ip_address(address))


@pytest.mark.parametrize("address", ["8.8.8.8", "1.1.1.1", "172.32.0.1", "100.128.0.1", "2606:4700::1111", "2a00::1"])
def test_public_addresses_are_not_refused(address: str) -> None:
    assert refuse_address(address) is None


@pytest.mark.parametrize(
    "url",
    [
        "http://example.com/hook",
        "ftp://example.com/",
        "javascript:alert(1)",
        "//example.com",
        "https://",
        "https:///path",
        "https://user@example.com/",
        "https://good.example@127.0.0.1/",
        "https://good.example\\@127.0.0.1/",
        "https://exa\tmple.com/",
        "https://example.com/a b",
        "https://example.com./",
        "https://example.com/#top",
        "https://127.0.0.1/",
        "https://127.1/",
        "https://2130706433/",
        "https://0x7f000001/",
        "https://0x7f.1/",
        "https://017700000001/",
        "https://0177.0.0.1/",
        "https://[::1]/",
        "https://[::ffff:7f00:1]/",
        "https://[fe80::1%25eth0]/",
        "https://169.254.169.254/latest/meta-data",
        "https://localhost/",
        "https://LocalHost:8443/",
        "https://a.localhost/",
        "https://printer/",
        "https://printer.local/",
        "https://db.internal/",
        "https://hook.invalid/",
        "https://a..example.com/",
        "https://" + "a" * 64 + ".com/",
        "https://example.com:0/",
        "https://example.com:22/",
        "https://example.com:6379/",
        "https://example.com:99999/",
        "https://example.com:x/",
        "https://[::1/",
        "https://ex\u00e4mple.com/",
        "https://example.com/\x00",
        "https://example.com/" + "a" * 3000,
        "",
    ],
)
def test_a_bad_url_is_refused(url: str) -> None:
    with pytest.raises(InvalidInput):
        Egress().check_url(url)


@pytest.mark.parametrize("url", ["https://example.com/hook?a=1", "https://example.com:8443", "https://8.8.8.8/x"])
def test_a_good_url_is_taken(url: str) -> None:
    Egress().check_url(url)


def test_the_operator_may_widen_it() -> None:
    inside = Egress.of(["127.0.0.0/8", "10.0.0.0/8"], allow_http=True, ports=None)
    inside.check_url("http://127.0.0.1:8080/hook")
    inside.check_url("http://localhost:8080/hook")
    inside.check_url("http://printer.local/hook")
    for never in ("http://example.com:0/", "http://hook.invalid/"):
        with pytest.raises(InvalidInput):
            inside.check_url(never)
    with pytest.raises(InvalidInput, match="this machine"):
        Egress.of(["10.0.0.0/8"], allow_http=True, ports=None).check_url("http://localhost/")
    with pytest.raises(InvalidInput, match=r"192\.168"):
        inside.check_url("http://192.168.0.1/")
    with pytest.raises(InvalidInput, match=r"10\.0\.0\.0/8"):
        Egress.of(["everything"])
