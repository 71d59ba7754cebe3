"""The jobs of bench/walls.py: they take a worker's slot and do nothing."""

from __future__ import annotations

import time

from penstock import Penstock

app = Penstock()


@app.job(key="nap", timeout=60)
def nap(seconds: float = 0.1) -> None:
    time.sleep(seconds)
