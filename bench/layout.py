"""The statements of this tree and of an earlier commit, driven in the database alone, in turns.

    python -m bench.layout COMMIT [--jobs 30000] [--batch 400] [--turns 3] [--database postgresql|sqlite]

Each turn is a process of its own that imports its own tree (`bench/limit.py` of that tree), on one server with a fresh database, or on a
fresh file. By the clock, by the processor time of the server's process (which a busy machine does not change), and in bytes of WAL.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.support.postgres import Server

HERE = Path(__file__).resolve().parents[1]
# What a turn does, in either tree.
TURN = """
import json, os, sys, time
url, jobs, batch = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
from bench.limit import drain
from penstock import Penstock
from penstock.store.database import Database
from penstock.store.schema import upgrade
db = Database(url); upgrade(db); db.close()
app = Penstock(url); app.define("noop", runner="python")
began = time.perf_counter(); app.enqueue_many("noop", [{} for _ in range(jobs)]); enqueued = time.perf_counter() - began
app.close()
wal = lambda: 0
if url.startswith("postgresql"):
    import psycopg
    watch = psycopg.connect(url, autocommit=True)
    watch.execute("ANALYZE"); watch.execute("CHECKPOINT")
    wal = lambda: int(watch.execute("SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn").fetchone()[0])
    from bench import limit
    # Run ids come from the worker; PostgreSQL would open the source of randomness once for each.
    watch.execute("CREATE SEQUENCE run_number"); whole = limit.postgres_loop
    cheap = "CAST(lpad(to_hex(nextval('run_number')), 32, '0') AS uuid)"
    limit.postgres_loop = lambda batch: whole(batch).replace("gen_random_uuid()", cheap)
    real = psycopg.connect
    held = []
    def processor():
        fields = open(f"/proc/{held[-1].info.backend_pid}/stat").read().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    class Kept:
        def __init__(self, conn): self.conn = conn
        def __enter__(self): return self.conn
        def __exit__(self, *_): pass
    def connect(*args, **options):
        held.append(real(*args, **options)); return Kept(held[-1])
    limit.psycopg.connect = connect
else:
    processor = time.process_time
before, used = wal(), 0 if url.startswith("postgresql") else processor()
took = drain(url, batch)
used = processor() - used
print(json.dumps({"drained": jobs / took, "by_cpu": jobs / used, "wal": (wal() - before) / jobs, "enqueued": jobs / enqueued}))
"""


def turn(tree: Path, url: str, args: argparse.Namespace) -> dict[str, float]:
    environment = {**os.environ, "PYTHONPATH": f"{tree / 'src'}{os.pathsep}{tree}"}
    command = [sys.executable, "-c", TURN, url, str(args.jobs), str(args.batch)]
    done = subprocess.run(command, env=environment, cwd=tree, check=True, capture_output=True, text=True)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def compare(name: str, trees: dict[str, Path], urls: list[str], args: argparse.Namespace) -> None:
    found: dict[str, list[dict[str, float]]] = {each: [] for each in trees}
    for _ in range(args.turns):
        for each, tree in trees.items():
            found[each].append(turn(tree, urls.pop(), args))
    medians = {
        each: {figure: statistics.median(one[figure] for one in told) for figure in told[0]}
        for each, told in found.items()
    }
    before = medians["before"]
    print(f"{name}, {args.jobs:,} jobs in batches of {args.batch}, medians of {args.turns}")
    for each, figures in medians.items():
        print(
            f"  {each:7} {figures['drained']:8,.0f} jobs/s {figures['drained'] / before['drained']:5.2f}x"
            f"   {figures['by_cpu']:8,.0f} by processor time {figures['by_cpu'] / before['by_cpu']:5.2f}x"
            f"   {figures['wal']:6,.0f} B of WAL   {figures['enqueued']:8,.0f} enqueued/s {figures['enqueued'] / before['enqueued']:5.2f}x"
        )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.layout")
    parser.add_argument("commit")
    parser.add_argument("--jobs", type=int, default=30_000)
    parser.add_argument("--batch", type=int, default=400)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--database", choices=("postgresql", "sqlite"))
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        before = Path(folder) / "before"
        before.mkdir()
        archive = subprocess.run(["git", "archive", args.commit], cwd=HERE, check=True, capture_output=True).stdout
        subprocess.run(["tar", "-x", "-C", str(before)], input=archive, check=True)
        trees = {"before": before, "now": HERE}
        if args.database != "sqlite":
            server = Server(durable=True, settings={"shared_buffers": "512MB"}).start()
            try:
                compare(
                    "PostgreSQL", trees, [server.url(server.create_database()) for _ in range(2 * args.turns)], args
                )
            finally:
                server.remove()
        if args.database != "postgresql":
            files = [f"sqlite:///{folder}/{number}.db" for number in range(2 * args.turns)]
            compare("SQLite", trees, files, args)


if __name__ == "__main__":
    main()
