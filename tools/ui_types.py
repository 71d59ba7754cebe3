"""Make the page's API types from our OpenAPI document; `--check` fails when the committed file has drifted.

python tools/ui_types.py [--check]
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

UI = Path(__file__).parent.parent / "ui"
TYPES = UI / "src" / "api" / "schema.d.ts"


def generate() -> str:
    """The TypeScript of the API as this checkout serves it."""
    from penstock.server.openapi import document

    npx = shutil.which("npx")
    if npx is None:
        raise SystemExit("npx was not found. Install Node.js 20.19 or newer; it makes the page's types.")
    if not (UI / "node_modules" / "openapi-typescript").is_dir():
        raise SystemExit("The page's tools are not installed. Run: npm --prefix ui ci")
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder) / "openapi.json", Path(folder) / "schema.d.ts"
        source.write_text(document())
        command = [npx, "--no-install", "openapi-typescript", str(source), "-o", str(target), "--alphabetize"]
        done = subprocess.run(command, cwd=UI, capture_output=True, text=True)
        if done.returncode != 0:
            raise SystemExit(f"openapi-typescript failed:\n{done.stdout}{done.stderr}")
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
