"""One file per resource."""

from penstock.server.routes import access, admin, jobs, worker
from penstock.server.routing import Routes

RESOURCES: tuple[Routes, ...] = (jobs.routes, worker.routes, access.routes, admin.routes)
"""In the order in which paths are matched."""
