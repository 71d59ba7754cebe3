"""The command line: `penstock VERB`. One file per verb."""

from __future__ import annotations

import sys

from penstock.cli._common import guarded
from penstock.cli._root import app
from penstock.run.shield import receive


def main() -> None:
    """The `penstock` program."""
    receive()
    sys.exit(guarded(app))


__all__ = ["main"]
