"""The HTTP service. `create_app(penstock, settings)` makes it."""

from penstock.server.app import create_app
from penstock.server.settings import Settings
from penstock.server.transport import uvicorn_config

__all__ = ["Settings", "create_app", "uvicorn_config"]
