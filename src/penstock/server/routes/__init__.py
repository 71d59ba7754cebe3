"""One file per resource."""

from penstock.server.routes import (
    access,
    admin,
    audit,
    bulk,
    groups,
    jobs,
    overview,
    pipelines,
    reach,
    revoked,
    sessions,
    sign_in,
    stream,
    tenancy,
    tokens,
    triggers,
    worker,
)
from penstock.server.routing import Routes

RESOURCES: tuple[Routes, ...] = (
    bulk.routes,
    triggers.routes,
    jobs.routes,
    stream.routes,
    worker.routes,
    groups.routes,
    overview.routes,
    reach.routes,
    access.routes,
    audit.routes,
    revoked.routes,
    sign_in.routes,
    sessions.routes,
    tokens.routes,
    admin.routes,
    tenancy.routes,
    pipelines.routes,
)
"""In the order in which paths are matched: fixed names before ids."""
