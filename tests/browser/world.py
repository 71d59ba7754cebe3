"""A small company's jobs, for the page to show: `penstock up --app tests.browser.world:app`."""

from __future__ import annotations

import sys
import time

from penstock import Context, Penstock

app = Penstock()
QUICK = {"base": 0.05, "factor": 1.0, "cap": 0.05, "jitter": 0.0}


@app.job(key="resize-image", timeout=60)
def resize_image(image_id: int, width: int = 800) -> dict[str, int]:
    """Make a smaller copy of an uploaded image"""
    return {"image_id": image_id, "width": width, "height": width * 3 // 4}


@app.job(key="train-model", isolation="process", timeout=600, max_attempts=1)
def train_model(ctx: Context, model: str = "siglip", epochs: int = 5, pause: float = 0.2) -> dict[str, float]:
    """Train a tagging model and keep its best epoch"""
    loss = 2.0
    for epoch in range(1, epochs + 1):
        if ctx.canceled():
            break
        loss *= 0.82
        print(f"epoch {epoch}/{epochs}  loss={loss:.4f}  model={model}", flush=True)
        ctx.progress(epoch, epochs, f"epoch {epoch} of {epochs}")
        time.sleep(pause)
    return {"loss": round(loss, 4)}


@app.job(key="sync-folder", max_attempts=2, retry_policy=QUICK)
def sync_folder(provider: str, path: str = "/") -> None:
    """Sync a provider's folder"""
    raise ConnectionError(f"{provider} did not answer within 30 s while listing {path}")


@app.job(key="import-feed", max_attempts=1)
def import_feed(url: str, broken: bool = False) -> int:
    """Import a product feed"""
    if broken:
        raise ValueError("row 1841: price is 'n/a'; expected a number")
    return 1841


@app.job(key="nightly-report", max_attempts=3, retry_mode="chain", retry_policy=QUICK)
def nightly_report(attempt_needed: int, ctx: Context) -> str:
    """Send yesterday's numbers"""
    if ctx.attempt < attempt_needed:
        raise TimeoutError("the warehouse is still loading")
    return "sent to 14 people"


@app.job(key="fragile", max_attempts=1)
def fragile(ctx: Context, needs: int = 2) -> str:
    """Fails the first time"""
    if ctx.attempt < needs:
        raise OSError("disk full on /var/data")
    return "done"


@app.job(key="wait-for-file", timeout=600, max_attempts=1)
def wait_for_file(ctx: Context, name: str = "orders.csv") -> str:
    """Wait until a partner delivers a file"""
    while not ctx.canceled():
        time.sleep(0.05)
    return name


@app.job(key="hostile-<img src=x onerror=alert(1)>", isolation="process", max_attempts=1)
def hostile(text: str, long_line: int = 0) -> dict[str, str]:
    """<script>alert("description")</script>"""
    print("<script>alert(1)</script>")
    print("\x1b[31mred\x1b[0m \x1b]0;title\x07 bell\x07 back\x08space")
    print("right to left: \u202etxt.exe\u202c done")
    print("x" * long_line)
    print(text)
    sys.stdout.flush()
    raise RuntimeError('<img src=x onerror="alert(2)"> \u202eelif')


@app.job(key="never-offered", queue="elsewhere")
def never_offered() -> None:
    """Waits for a worker that serves its queue"""
