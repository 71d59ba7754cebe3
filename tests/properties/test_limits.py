"""No chain of creations widens anything: whoever a token comes from may do all that it may, for as long."""

from __future__ import annotations

import ipaddress
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from penstock.core.access import GRANTS, Need, Role
from penstock.core.errors import ExceedsParent
from penstock.core.limits import Limits, allows_address, covers, narrowed
from penstock.core.scopes import Scope, allows_key

TENANTS = (None, UUID(int=1), UUID(int=2))
START = datetime(2026, 1, 1, tzinfo=UTC)
KEYS = ("*", "a", "a*", "a.b", "a.b*", "a.b.c", "b*", "b")
NETWORKS = ("0.0.0.0/0", "10.0.0.0/8", "10.1.0.0/16", "10.1.2.3/32", "192.168.0.0/16", "::/0", "2001:db8::/32")
SAMPLES = ("10.1.2.3", "10.1.9.9", "10.9.9.9", "192.168.1.1", "8.8.8.8", "2001:db8::1", "fe80::1")
NAMES = ("a", "a.b", "a.b.c", "ax", "b", "bb", "c", "")


def some(values: tuple[str, ...]) -> st.SearchStrategy[tuple[str, ...] | None]:
    chosen = st.lists(st.sampled_from(values), min_size=1, max_size=4, unique=True)
    return st.none() | chosen.map(lambda each: tuple(sorted(each)))


LIMITS = st.builds(
    Limits,
    role=st.sampled_from(list(Role)),
    tenant_id=st.sampled_from(TENANTS),
    scopes=some(tuple(each.value for each in Scope)),
    keys=some(KEYS),
    addresses=some(NETWORKS),
    queues=some(("default", "gpu")),
    expires_at=st.none() | st.integers(1, 100).map(lambda hours: START + timedelta(hours=hours)),
)


def allowed(limits: Limits) -> set[object]:
    """Everything that a token with these limits may do, as far as the samples tell."""
    scopes = [each.value for each in Scope] if limits.scopes is None else limits.scopes
    ends = 1000 if limits.expires_at is None else (limits.expires_at - START) // timedelta(hours=1)
    return {
        *(("scope", each) for each in scopes),
        *(("key", each) for each in NAMES if allows_key(limits.keys, each)),
        *(("address", each) for each in SAMPLES if allows_address(limits.addresses, each)),
        *(("hour", each) for each in range(ends)),
        *(("queue", each) for each in ("default", "gpu", "other") if limits.queues is None or each in limits.queues),
    }


@given(LIMITS, st.lists(LIMITS, max_size=6))
def test_no_chain_of_creations_widens_anything(first: Limits, asked: list[Limits]) -> None:
    chain = [first]
    for each in asked:
        try:
            chain.append(narrowed(chain[-1], each))
        except ExceedsParent:
            continue
    for older, younger in pairwise(chain):
        assert allowed(younger) <= allowed(older)
        assert older.role in (Role.SUPER_ADMIN, Role.TENANT_ADMIN)
        assert younger.role is Role.WORKER or GRANTS[younger.role] <= GRANTS[older.role]
        assert older.role is Role.SUPER_ADMIN or younger.tenant_id == older.tenant_id
        assert covers(older, younger)
    assert all(Need.ADMIN not in GRANTS[each.role] for each in chain[1:] if first.role is not Role.SUPER_ADMIN)


@given(LIMITS, LIMITS)
def test_what_is_refused_would_be_wider(parent: Limits, asked: Limits) -> None:
    """A child that asks for nothing of its own is never refused for its limits."""
    plain = Limits(asked.role, parent.tenant_id)
    if parent.role in (Role.SUPER_ADMIN, Role.TENANT_ADMIN) and (
        asked.role is not Role.SUPER_ADMIN or parent.role is Role.SUPER_ADMIN
    ):
        assert allowed(narrowed(parent, plain)) == allowed(parent)


def test_the_samples_tell_the_networks_apart() -> None:
    networks = [ipaddress.ip_network(each) for each in NETWORKS]
    assert len({frozenset(each for each in SAMPLES if ipaddress.ip_address(each) in net) for net in networks}) == 7
