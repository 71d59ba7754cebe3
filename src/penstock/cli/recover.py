"""`penstock recover`: mend what a crash left behind."""

from __future__ import annotations

import dataclasses

from penstock.cli._common import AsJson, DatabaseUrl, open_app, out
from penstock.cli._show import print_facts, print_json


def recover(as_json: AsJson = False, database_url: DatabaseUrl = None) -> None:
    """Repair what a crash left behind, and what should not be there at all. Doing it again changes nothing.

    Workers repair what a crash left behind when they start. Only this command looks through all jobs and runs: for runs without a
    job, jobs in two states or in none, and dedupe keys of nobody.
    """
    with open_app(database_url) as app:
        mended = app.recover()
    if as_json:
        print_json(mended)
    elif mended.total == 0:
        out().print("There was nothing to mend.")
    else:
        print_facts((name.replace("_", " "), n) for name, n in dataclasses.asdict(mended).items() if n)
