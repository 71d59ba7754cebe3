"""The HTTP service. `create_app(penstock, settings)` makes it."""

from penstock.server.app import create_app
from penstock.server.settings import Settings

__all__ = ["Settings", "create_app"]
