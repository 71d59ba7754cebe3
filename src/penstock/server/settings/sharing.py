"""Settings of how tenants share the service."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from uuid import UUID

from penstock.core import quota
from penstock.core.ids import DEFAULT_TENANT_ID
from penstock.core.quota import FREE, SERVICE_PRIORITIES, Bounds
from penstock.core.settings.base import Group, setting
from penstock.core.share import SHARE


@dataclass(frozen=True, kw_only=True)
class SharingSettings(Group):
    """What one tenant, token or person may use of the service."""

    rate_limit: float = setting(500.0, more_than=0)
    """Requests a second and principal; bursts of twice as many pass."""
    stream_limit: int = setting(100, at_least=0)
    """Live streams and log streams open at once for one tenant."""
    waits_per_token: int = setting(500, more_than=0)
    """Requests with `wait_seconds` that may wait at once for one token."""
    waits_per_tenant: int = setting(1000, more_than=0)
    """Requests with `wait_seconds` that may wait at once for one tenant."""
    quotas: tuple[str, ...] = ()
    """What binds a tenant through the service where nothing is set for it: `tokens=100,triggers=unlimited`. See service/quotas.md."""
    threads: int = setting(40, more_than=0)
    """Threads that serve the API; one tenant has at most three quarters of them at a time."""
    processor_share: float = setting(SHARE, more_than=0, at_most=1)
    """How much of one processor the requests of a tenant may use for long. Who uses more gives way while others are there: its
    requests are served by the overflow process, and one at a time."""

    def __post_init__(self) -> None:
        super().__post_init__()
        quota.parsed(self.quotas)

    def default_quotas(self) -> Mapping[str, int | None]:
        """The quotas of a tenant for which nothing is set."""
        return quota.changed({**quota.SERVICE_DEFAULTS, "streams": self.stream_limit}, _kept(quota.parsed(self.quotas)))

    def default_bounds(self, operator: bool, tenant_id: UUID) -> Bounds:
        """What binds a caller where nothing is set for the tenant. Nothing binds the operator in the tenant `default`, which is
        the operator's own; there, others are bound in their priorities alone."""
        if tenant_id != DEFAULT_TENANT_ID:
            return _service_bounds(self)
        return FREE if operator else Bounds({}, *SERVICE_PRIORITIES)


@lru_cache
def _service_bounds(settings: SharingSettings) -> Bounds:
    return Bounds(settings.default_quotas(), *SERVICE_PRIORITIES)


def _kept(given: Mapping[str, int | str]) -> dict[str, int | str]:
    return {name: value for name, value in given.items() if value != quota.DEFAULT}
