"""The demonstration behind `make run`: a small shop, with everything worth looking at.

penstock up --app examples.demo.app:app --commands examples/demo/commands.toml --pipeline examples.demo.lab
"""

import random
import time

from penstock import Context, Penstock, Skip

app = Penstock()


@app.job(key="resize-image", max_attempts=3, timeout=60)
def resize_image(ctx: Context, image_id: int, width: int = 800) -> dict[str, int]:
    """Resize an image, slowly enough to watch."""
    for step in range(1, 6):
        ctx.progress(step, 5, f"pass {step}")
        time.sleep(random.uniform(0.1, 0.5))
    return {"image_id": image_id, "width": width}


@app.job(key="charge-card", max_attempts=4, retry_policy={"base": 2, "cap": 10})
def charge_card(ctx: Context, order_id: int) -> dict[str, int]:
    """Charge a card; the bank is not always there, so it is tried again."""
    if ctx.attempt < 3:
        raise ConnectionError("the bank did not answer")
    return {"charged": order_id}


@app.job(key="import-catalogue", max_attempts=2, retry_policy={"base": 2})
def import_catalogue(file: str) -> None:
    """Fails for good: look at it under dead letter, and at why."""
    raise ValueError(f"{file} has no header line")


@app.job(key="clean-up")
def clean_up(older_than_days: int = 30) -> str:
    """What the schedule asks for every minute."""
    if random.random() < 0.3:
        raise Skip("nothing is that old")
    return f"removed {random.randint(1, 9)} files older than {older_than_days} days"


@app.job(key="step")
def step(name: str) -> str:
    """A member of the nightly group."""
    time.sleep(0.3)
    return f"{name} done"


def prepare() -> None:
    """Fill a fresh database, once."""
    app.sync_definitions()
    app.define("disk-usage", runner="command", description="How full the disk is", timeout_seconds=30)
    app.define("failing-command", runner="command", description="Ends with a bad exit code", max_attempts=2)
    app.define("populate-statistics", runner="populate", default_params={"table": "examples.demo.lab:Statistics"})
    if app.jobs.list(limit=1):
        return
    app.tenants.create("acme", "Acme Corporation", timezone="Europe/Paris", weight=2)
    app.triggers.schedule("Clean up every minute", "* * * * *", "clean-up", params={"older_than_days": 7})
    app.triggers.schedule("Nightly statistics", "0 2 * * *", "populate-statistics", timezone="America/New_York")
    app.triggers.on_event(
        "Resize what is uploaded", "image.uploaded", "resize-image", params={"image_id": "{{event.id}}"}
    )
    app.enqueue_many("resize-image", [{"image_id": number} for number in range(1, 25)])
    app.enqueue("charge-card", {"order_id": 1001}, correlation_id="order:1001")
    app.enqueue("import-catalogue", {"file": "spring.csv"})
    app.enqueue("disk-usage")
    app.enqueue("failing-command")
    app.enqueue("populate-statistics")
    app.enqueue("resize-image", {"image_id": 99}, delay=600, dedupe_key="image:99")
    app.groups.create([("step", {"name": name}) for name in ("export", "verify", "publish")], label="Nightly export")
    app.emit("image.uploaded", {"id": 500})
    for number in range(5):
        app.enqueue("resize-image", {"image_id": number}, tenant="acme")


prepare()
