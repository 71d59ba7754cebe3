"""`python -m penstock.server.openapi > openapi.json`: the API's document, as the page's types are made from."""

from __future__ import annotations

import json
import sys
import tempfile

from penstock.app import Penstock
from penstock.server.app import create_app
from penstock.server.settings import Settings


def document() -> str:
    with tempfile.TemporaryDirectory() as folder, Penstock(f"sqlite:///{folder}/penstock.db") as penstock:
        return json.dumps(create_app(penstock, Settings()).openapi(), indent=2, sort_keys=True) + "\n"


if __name__ == "__main__":
    sys.stdout.write(document())
