"""The engine's tables, one MetaData. `work` is hot; `setup` and `reach` are not."""

from penstock.store.tables.base import metadata
from penstock.store.tables.reach import (
    audit,
    deliveries,
    events,
    idempotency_keys,
    principals,
    sessions,
    ticks,
    trigger_fires,
    triggers,
    webhooks,
)
from penstock.store.tables.setup import clock, definitions, groups, leaders, queues, reservations, tenants, workers
from penstock.store.tables.work import (
    holds_slot,
    in_status,
    is_active,
    is_claimable,
    jobs,
    run_in_status,
    runs,
    tallies,
    waiting_for,
)

__all__ = [
    "audit",
    "clock",
    "definitions",
    "deliveries",
    "events",
    "groups",
    "holds_slot",
    "idempotency_keys",
    "in_status",
    "is_active",
    "is_claimable",
    "jobs",
    "leaders",
    "metadata",
    "principals",
    "queues",
    "reservations",
    "run_in_status",
    "runs",
    "sessions",
    "tallies",
    "tenants",
    "ticks",
    "trigger_fires",
    "triggers",
    "waiting_for",
    "webhooks",
    "workers",
]
