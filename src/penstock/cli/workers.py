"""`penstock workers`: who is there."""

from __future__ import annotations

from penstock.cli._common import AsJson, DatabaseUrl, open_app
from penstock.cli._show import age, print_json, print_table
from penstock.queue.observe import present_workers


def workers(as_json: AsJson = False, database_url: DatabaseUrl = None) -> None:
    """Workers that have not stopped; `stale` are those not heard of lately."""
    with open_app(database_url) as app:
        found = present_workers(app.ground)
    if as_json:
        print_json(found)
        return
    columns = ("id", "version", "queues", "keys", "running", "seen", "")
    print_table(
        columns,
        [
            (
                row["id"],
                row["version"],
                ", ".join(row["queues"]) or "all",
                ", ".join(row["keys"] or ["all"]),
                f"{row['running_count']}/{row['concurrency']}",
                f"{age(row['last_seen_at'])} ago",
                "stale" if row["stale"] else "",
            )
            for row in found
        ],
        "No workers.",
    )
