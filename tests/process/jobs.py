"""Jobs that tell how the process is set up that runs them."""

from __future__ import annotations

import gc
import os
import resource
import sys
from typing import Any

from penstock import Penstock
from penstock.core.own_process import is_ours

app = Penstock()


@app.job(key="look")
def look() -> dict[str, Any]:
    return {
        "young": gc.get_threshold()[0], "frozen": gc.get_freeze_count() > 0, "turn": sys.getswitchinterval(), "ours": is_ours(),
        "scheduler": os.sched_getscheduler(0), "files": resource.getrlimit(resource.RLIMIT_NOFILE)[0],
        "readable": os.access(f"/proc/{os.getpid()}/environ", os.R_OK),
    }  # fmt: skip
