"""The hot statements by the verb that runs them, and how SQLite goes about each."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from sqlalchemy import Connection

from penstock.store.hot import HotStatement
from penstock.store.sqlite import claim, close, heartbeat, insert

_NAMED = re.compile(r":([a-z_0-9]+)")


class SqliteExplain:
    """Show statements with their plans."""

    def hot_statements(self) -> Mapping[str, Sequence[HotStatement]]:
        """Return the statements of each verb, in the order in which they run."""
        writes = [
            HotStatement("look at what the job depends on, and find its place", insert._SEEN),
            HotStatement("take its dedupe key, if it has one", insert._INSERT_DEDUPE),
            HotStatement("write the job", insert._INSERT_JOB),
            HotStatement("put it in its place, if it can be claimed", insert._INSERT_READY),
            HotStatement("let it wait, if it cannot", insert._INSERT_WAITING),
        ]
        return {
            "enqueue": writes,
            "enqueue-many": [each for each in writes if each.sql != insert._INSERT_DEDUPE],
            "claim": [
                HotStatement("look whether anything must happen before", claim._GATE),
                HotStatement("find what comes first, for a worker of one queue", claim._find(1, True, False, False)),
                HotStatement("the same for a worker of two queues", claim._find(2, True, False, False)),
                HotStatement("begin its runs", claim._TAKE),
                HotStatement("read long params", claim._LONG_PARAMS),
                HotStatement("take it from what is ready", claim._LEAVE),
            ],
            "heartbeat": [HotStatement("extend the leases of a batch", heartbeat._HEARTBEAT)],
            "finish": [
                HotStatement("find the runs that are still ours", close._OURS),
                HotStatement("write the runs that succeeded and left nothing else", close._CLOSE_PLAIN),
                HotStatement("write the others", close._CLOSE_TOLD),
                HotStatement("let those wait that are tried again", close._TRY_AGAIN),
                HotStatement("free their dedupe keys", close._FREE_DEDUPE_KEYS),
                HotStatement("take them from what is running", close._LEAVE),
                HotStatement("count them", close._TALLY),
            ],
        }

    def plan(self, conn: Connection, statement: HotStatement) -> tuple[str, str]:
        """Return the statement as it is sent, and its plan as a tree."""
        cursor = conn.connection.cursor()
        try:
            names = _NAMED.findall(statement.sql)
            given = dict.fromkeys(names) if names else (None,) * statement.sql.count("?")
            rows = cursor.execute(f"EXPLAIN QUERY PLAN {statement.sql}", given).fetchall()
        finally:
            cursor.close()
        depth = {0: 0}
        lines = []
        for number, parent, _, detail in rows:
            depth[number] = depth.get(parent, 0) + 1
            lines.append("  " * (depth[number] - 1) + detail)
        return statement.sql.strip(), "\n".join(lines) or "Only writes: no table is searched."
