"""Jobs in an application: enqueued in your own transaction, run by a worker. Try it: python examples/jobs.py"""

import sqlite3
import tempfile
from pathlib import Path

from penstock import Context, Penstock

path = Path(tempfile.mkdtemp()) / "shop.db"
app = Penstock(f"sqlite:///{path}")


@app.job(key="send-receipt", max_attempts=3, timeout=60)
def send_receipt(ctx: Context, order_id: int, copy_to: str | None = None) -> dict[str, int]:
    ctx.progress(1, 1, "sent")
    return {"receipt_for": order_id}


# The order and the job that follows from it commit together, or not at all.
shop = sqlite3.connect(path)
shop.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, item TEXT)")
with shop:
    order_id = shop.execute("INSERT INTO orders (item) VALUES ('kettle')").lastrowid
    job = app.enqueue("send-receipt", {"order_id": order_id}, connection=shop)
shop.close()

app.worker(concurrency=4).run(until_idle=True)

done = app.jobs.get(job.id)
print(done.status, done.result)
app.close()
