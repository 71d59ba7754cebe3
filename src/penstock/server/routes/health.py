"""Whether the service lives, and whether it can work."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from penstock.core.wire.base import Answer
from penstock.server.problems import render
from penstock.server.readiness import Readiness

router = APIRouter(tags=["health"])


class Health(Answer):
    status: str


@router.get("/health/live", operation_id="health_live")
async def health_live() -> Health:
    """The process answers."""
    return Health(status="ok")


@router.get("/health/ready", operation_id="health_ready", response_model=Health)
async def health_ready(request: Request) -> Health | Response:
    """The database answers, and its tables fit this program."""
    readiness: Readiness = request.app.state.readiness
    fault = await readiness.fault()
    if fault is not None:
        return render(503, fault, "The database cannot be used now.")
    return Health(status="ok")
