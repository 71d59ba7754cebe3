"""Make the page's API types from our OpenAPI document; `--check` fails when the committed file has drifted.

python tools/ui_types.py [--check]
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

import hatch_build

UI = Path(__file__).parent.parent / "ui"
TYPES = UI / "src" / "api" / "schema.d.ts"


def generate() -> str:
    """The TypeScript of the API as this checkout serves it."""
    from penstock.server.openapi import document

    hatch_build.install_tools()
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder) / "openapi.json", Path(folder) / "schema.d.ts"
        source.write_text(document())
        hatch_build.npm("exec", "--no", "--", "openapi-typescript", str(source), "-o", str(target), "--alphabetize")
        return target.read_text()


def main(arguments: list[str]) -> int:
    made = generate()
    if arguments == ["--check"]:
        if not TYPES.is_file() or TYPES.read_text() != made:
            print("ui/src/api/schema.d.ts is not what the API says. Run: python tools/ui_types.py", file=sys.stderr)
            return 1
        return 0
    if arguments:
        print(__doc__, file=sys.stderr)
        return 2
    TYPES.write_text(made)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
