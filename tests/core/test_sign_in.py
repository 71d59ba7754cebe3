"""What claims give: roles, tenants, names and ways back."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.core.access import Role
from penstock.core.sign_in import Grant, choose, claim_at, describe, grants, parse_role_map, safe_return
from penstock.core.urls import is_safe_url

RULES = parse_role_map("admins=super_admin, ops=operator@acme, staff=viewer, bosses=tenant_admin")


def given(claims: dict[str, Any], tenant_claim: str | None = "tenants", claim: str = "groups") -> set[Grant]:
    return set(grants(claims, claim, RULES, tenant_claim))


def test_each_group_gives_its_role_in_its_tenant_or_in_those_of_the_claim() -> None:
    assert given({"groups": ["ops", "unknown"]}) == {Grant(Role.OPERATOR, "acme")}
    assert given({"groups": "staff", "tenants": "bolt"}) == {Grant(Role.VIEWER, "bolt")}
    assert given({"groups": ["staff"], "tenants": ["acme", "bolt", "", 7, None]}) == {
        Grant(Role.VIEWER, "acme"), Grant(Role.VIEWER, "bolt"),
    }  # fmt: skip
    assert given({"groups": ["staff"]}, None) == {Grant(Role.VIEWER, "default")}
    assert given({"groups": ["admins"], "tenants": ["acme"]}) == {Grant(Role.SUPER_ADMIN, None)}
    for nothing in (
        {},
        {"groups": None},
        {"groups": 7},
        {"groups": {"ops": True}},
        {"groups": ["OPS"]},
        {"groups": ["staff"]},
    ):
        assert given(nothing) == set(), nothing


def test_without_rules_the_claim_names_roles_and_never_a_worker() -> None:
    claims = {"roles": ["operator", "worker", "king"], "tenants": ["acme"]}
    assert grants(claims, "roles", (), "tenants") == {Grant(Role.OPERATOR, "acme")}


def test_an_address_counts_only_if_it_was_verified() -> None:
    rules = parse_role_map("ann@example.com=super_admin")
    claims = {"email": "ann@example.com"}
    for verified, found in ((True, 1), (False, 0), (None, 0), ("true", 0)):
        assert len(grants({**claims, "email_verified": verified}, "email", rules, None)) == found


def test_claims_are_found_by_name_and_by_path() -> None:
    claims = {"realm_access": {"roles": ["ops"]}, "https://acme.test/roles": ["staff"], "a": "text"}
    assert claim_at(claims, "realm_access.roles") == ["ops"]
    assert claim_at(claims, "https://acme.test/roles") == ["staff"]
    assert claim_at(claims, "a.b") is None
    assert claim_at(claims, "nothing") is None


def test_the_same_claims_always_give_the_same_session() -> None:
    both = [Grant(Role.VIEWER, "acme"), Grant(Role.OPERATOR, "bolt"), Grant(Role.OPERATOR, "cork")]
    everywhere = {"acme", "bolt", "cork"}
    for order in (both, both[::-1]):
        assert choose(order, everywhere) == Grant(Role.OPERATOR, "bolt")
        assert choose(order, everywhere, "acme") == Grant(Role.VIEWER, "acme")
        assert choose(order, {"acme"}) == Grant(Role.VIEWER, "acme")
        assert choose(order, {"acme"}, "bolt") is None
        assert choose(order, everywhere, "nowhere") is None
        assert choose(order, set()) is None
        assert choose([*order, Grant(Role.SUPER_ADMIN, None)], everywhere, "acme") == Grant(Role.SUPER_ADMIN, None)
    assert choose([], everywhere) is None


@pytest.mark.parametrize("path", ["/", "/t/acme/jobs", "/t/acme/jobs?status=failed&x=%2F%2F", "/a//b", "/@evil"])
def test_a_way_back_stays_on_the_page(path: str) -> None:
    assert safe_return(path) == path


def test_a_person_is_named_by_their_subject_first() -> None:
    assert describe({"sub": "1"}) == "oidc:1"
    assert describe({"sub": "1", "preferred_username": "ann", "email": 7}) == "oidc:1 (ann)"
    assert len(describe({"sub": "1", "name": "x" * 5000})) == 200


def test_only_addresses_that_nobody_can_listen_to_are_safe() -> None:
    for good in ("https://id.example.com/x", "http://127.0.0.1:80", "http://[::1]/", "http://localhost:9/o"):
        assert is_safe_url(good), good
    for bad in ("http://id.example.com", "https://", "https://a:b@c", "https://x#y", "http://localhost.evil.test", "https://x:99999",
                "https://[", "file:///etc/passwd", "https://exämple.com", "https://a b"):  # fmt: skip
        assert not is_safe_url(bad), bad
