"""A small lab's tables, for the page's pipeline screen. `python -m tests.browser.lab` fills them."""

from __future__ import annotations

from typing import Any

import penstock.pipeline as dj

schema = dj.Schema("lab")


@schema
class Recording(dj.Manual):
    definition = """
    recording_id : int
    ---
    seconds : int
    """


@schema
class Filtered(dj.Computed):
    definition = """
    -> Recording
    ---
    samples : int
    """

    def make(self, key: dict[str, Any]) -> None:
        if key["recording_id"] % 4 == 3:
            raise ValueError("the electrode was not connected")
        self.insert1({**key, "samples": 30_000})


@schema
class Spikes(dj.Computed):
    definition = """
    -> Filtered
    ---
    spikes : int
    """

    def make(self, key: dict[str, Any]) -> None:
        self.insert1({**key, "spikes": 12})


def fill() -> None:
    """Eight recordings, two of which cannot be filtered."""
    Recording.insert([{"recording_id": n, "seconds": 60} for n in range(8)], skip_duplicates=True)
    Filtered.populate(reserve_jobs=True, suppress_errors=True)
    Spikes.jobs.refresh()


if __name__ == "__main__":
    fill()
