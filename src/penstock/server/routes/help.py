"""The page behind the `type` of every problem: what the error means and what to do. For anybody; it says nothing of data."""

from __future__ import annotations

import re
from html import escape

from fastapi import APIRouter
from fastapi.responses import HTMLResponse
from starlette.exceptions import HTTPException

from penstock.core.errors import InvalidInput
from penstock.core.explain import explain

router = APIRouter(prefix="/help", include_in_schema=False)

PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>{code} - Penstock</title><main><h1><code>{code}</code></h1><p>{happened}</p><h2>What to do</h2><p>{do}</p>
<p>The page of the documentation that goes deeper: <code>docs/{page}</code></p></main></html>
"""


@router.get("/errors/{code}", operation_id="help_error")
async def help_error(code: str) -> HTMLResponse:
    """What an error code means and what to do about it."""
    try:
        found = explain(code)
    except InvalidInput as error:
        raise HTTPException(404) from error
    told = {name: re.sub(r"`(.+?)`", r"<code>\1</code>", escape(getattr(found, name))) for name in ("happened", "do")}
    return HTMLResponse(PAGE.format(code=escape(found.code), page=escape(found.page), **told))
