"""Workers: claim, run, report, and survive."""

from penstock.worker.worker import Worker

__all__ = ["Worker"]
