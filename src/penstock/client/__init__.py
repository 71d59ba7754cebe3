"""The service's API from Python. Every call is written once, in `calls`, as plain values; `Client` and `AsyncClient`
differ in how they send."""

from penstock.client.calls import ApiError, Ask, Calls
from penstock.client.sending import AsyncClient, Client

__all__ = ["ApiError", "Ask", "AsyncClient", "Calls", "Client"]
