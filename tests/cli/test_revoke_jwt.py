"""`penstock tokens revoke-jwt`"""

from __future__ import annotations

import pytest

from penstock import Penstock
from penstock.queue.revoke import list_revoked
from tests.cli.conftest import Shell


def test_a_jwt_or_all_of_a_subject_is_revoked(penstock: Shell, app: Penstock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PENSTOCK_JWT_ISSUER", raising=False)
    monkeypatch.delenv("PENSTOCK_OIDC_ISSUER", raising=False)
    assert penstock("tokens", "revoke-jwt", "--jti", "a").code == 2
    assert penstock("tokens", "revoke-jwt", "--issuer", "https://id.test").code == 2
    assert penstock("tokens", "revoke-jwt", "--issuer", "https://id.test", "--jti", "a", "--subject", "b").code == 2
    assert list_revoked(app.ground) == []
    told = penstock.well("tokens", "revoke-jwt", "--issuer", "https://id.test", "--jti", "a").out
    assert "The jti a of https://id.test is revoked." in told
    monkeypatch.setenv("PENSTOCK_JWT_ISSUER", "https://other.test")
    made = penstock.well("tokens", "revoke-jwt", "--subject", "ann", "--json").json
    assert (made["kind"], made["value"], made["issuer"]) == ("subject", "ann", "https://other.test")
    assert {(each.kind, each.value) for each in list_revoked(app.ground)} == {("jti", "a"), ("subject", "ann")}
