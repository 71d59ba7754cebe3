"""The web page: static files built into the package, or a hint when they were not."""

from __future__ import annotations

from pathlib import Path

from fastapi import FastAPI, Request
from fastapi.responses import FileResponse, HTMLResponse, PlainTextResponse, Response
from starlette.exceptions import HTTPException

PAGE = Path(__file__).parent / "page"
HINT = "Penstock's API is at /api/v1. The web page was not built into this installation.\n"
FOREVER = {"cache-control": "public, max-age=31536000, immutable"}
FRESH = {"cache-control": "no-cache"}
INDEX = "index.html"
OURS = ("api", "health", "help", "metrics", "openapi.json")


def mount(app: FastAPI, folder: Path = PAGE) -> None:
    """Serve the page at the root path. Any address that is no file is the page's own to route."""
    root = folder.resolve()
    prefix: str = app.state.settings.root_path

    def page(request: Request, path: str = "") -> Response:
        if path.split("/", 1)[0] in OURS:
            raise HTTPException(404)
        if not (root / INDEX).is_file():
            if path:
                raise HTTPException(404)
            return PlainTextResponse(HINT)
        found = _file(root, path)
        if found is not None and found.name != INDEX:
            return FileResponse(found, headers=FOREVER if "assets" in found.parts else FRESH)
        if path not in ("", INDEX) and "text/html" not in request.headers.get("accept", ""):
            raise HTTPException(404)  # only a browser that wants a page is given one
        return HTMLResponse(_index(root, prefix), headers=FRESH)

    app.add_api_route("/{path:path}", page, methods=["GET"], include_in_schema=False, response_model=None)


def _index(root: Path, prefix: str) -> str:
    """Return the page's first file, which is asked for at any depth, with its files' addresses made absolute."""
    text = (root / INDEX).read_text()
    return text.replace('="./', f'="{prefix}/').replace(
        "<title>", f'<meta name="penstock-root" content="{prefix}" />\n    <title>', 1
    )


def _file(root: Path, path: str) -> Path | None:
    """Return the file at `path` below `root`; None for whatever is none, also where the system refuses the name."""
    try:
        found = (root / path).resolve()
        return found if found.is_relative_to(root) and found.is_file() else None
    except (OSError, ValueError):
        return None
