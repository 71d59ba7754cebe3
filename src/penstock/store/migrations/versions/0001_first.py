"""The first schema."""

from __future__ import annotations

from alembic import op
from sqlalchemy import insert

from penstock.core.ids import DEFAULT_TENANT_ID
from penstock.store.dialects import dialect_for
from penstock.store.tables import clock, metadata, queues, tenants

revision = "0001"
down_revision = None


def upgrade() -> None:
    connection = op.get_bind()
    metadata.create_all(connection)
    now = dialect_for(connection.dialect.name).now()
    connection.execute(insert(tenants).values(id=DEFAULT_TENANT_ID, slug="default", name="Default", created_at=now))
    connection.execute(insert(queues).values(name="default", created_at=now))
    connection.execute(insert(clock).values(id=1, latest=now))
