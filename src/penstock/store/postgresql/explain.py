"""The hot statements by the verb that runs them, and how PostgreSQL goes about each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlalchemy import Connection

from penstock.store.hot import HotStatement
from penstock.store.postgresql import claim, close, heartbeat, insert, transaction

_NAME = "penstock_explain"


class PostgresExplain:
    """Show statements with their plans."""

    def hot_statements(self) -> Mapping[str, Sequence[HotStatement]]:
        """Return the statements of each verb, in the order in which they run."""
        gated, by_key = claim._OFF, transaction._BY_KEY_OFF
        one, several = (claim._claim_sql(many, True, False, True, True, True).by_server for many in (False, True))
        return {
            "enqueue": [HotStatement("write one job", insert._INSERT_ONE.by_server)],
            "enqueue-many": [
                HotStatement("write jobs that differ in their params only", insert._INSERT_ALIKE.by_server),
                HotStatement("write jobs of any kind: members of a group, jobs of triggers", insert._INSERT.by_server),
            ],
            "claim": [
                HotStatement("enter: look whether anything must happen before", claim._GATE.by_server),
                HotStatement("claim, for a worker of one queue", one, gated),
                HotStatement("claim, for a worker of several queues", several, gated),
            ],
            "heartbeat": [HotStatement("extend the leases of a batch", heartbeat._HEARTBEAT.by_server, by_key)],
            "finish": [HotStatement("close a batch of runs", close._CLOSE.by_server, by_key)],
        }

    def plan(self, conn: Connection, statement: HotStatement) -> tuple[str, str]:
        """Return the statement as it is sent, and its plan as a prepared statement has it: one for all values. It is planned under
        the settings that the transaction has when it runs."""
        names = dict.fromkeys(transaction.NAMED.findall(statement.sql))
        numbers = {name: number for number, name in enumerate(names, 1)}
        sent = transaction.NAMED.sub(lambda found: f"${numbers[found[1]]}", statement.sql).strip()
        given = f"({', '.join(['NULL'] * len(names))})" if names else ""
        cursor = conn.connection.cursor()
        try:
            cursor.execute("SET LOCAL plan_cache_mode = force_generic_plan")
            for setting in statement.off:
                cursor.execute(f"SET LOCAL {setting} = off")
            cursor.execute(f"PREPARE {_NAME} AS {sent}")
            cursor.execute(f"EXPLAIN EXECUTE {_NAME}{given}")
            plan = "\n".join(row[0] for row in cursor.fetchall())
            cursor.execute(f"DEALLOCATE {_NAME}")
            for setting in statement.off:
                cursor.execute(f"SET LOCAL {setting} TO DEFAULT")
        finally:
            cursor.close()
        legend = ", ".join(f"${number} is {name}" for name, number in numbers.items())
        return f"-- {legend}\n{sent}" if legend else sent, plan
