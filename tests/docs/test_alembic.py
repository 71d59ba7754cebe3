"""What the docs say to Alembic keeps it from proposing to drop our tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext

from penstock import Penstock
from tests.docs.blocks import blocks_of

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "transactional-enqueue.md"


def test_autogenerate_leaves_our_tables_alone(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'shop.db'}"
    with Penstock(url) as app:
        app.define("work")
    [block] = [block for block in blocks_of(PAGE) if block.title == "env.py"]
    env: dict[str, Any] = {}
    exec(block.text, env)
    theirs = sa.MetaData()
    sa.Table("orders", theirs, sa.Column("id", sa.Integer, primary_key=True))
    engine = sa.create_engine(url)
    with engine.connect() as conn:
        proposed = compare_metadata(MigrationContext.configure(conn), theirs)
        assert any(change[0] == "remove_table" for change in proposed)
        ours = {"include_object": env["include_object"]}
        left = compare_metadata(MigrationContext.configure(conn, opts=ours), theirs)
    engine.dispose()
    assert [(change[0], change[1].name) for change in left] == [("add_table", "orders")]
