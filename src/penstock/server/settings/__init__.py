"""The service's settings, one file per subject, put together and checked once."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.server.settings.connections import ConnectionSettings
from penstock.server.settings.observing import ObservingSettings
from penstock.server.settings.sharing import SharingSettings
from penstock.server.settings.sign_in import SignInSettings


@dataclass(frozen=True, kw_only=True)
class Settings(ConnectionSettings, SharingSettings, SignInSettings, ObservingSettings):
    """What an operator may set; each by the environment as PENSTOCK_<NAME IN CAPITALS>.

    >>> Settings.from_environment({"PENSTOCK_RATE_LIMIT": "50"}).rate_limit
    50.0
    """
