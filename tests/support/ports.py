"""Ports on loopback that nobody has."""

from __future__ import annotations

import random
import socket


def free_port() -> int:
    """Chosen at random, so that two processes that look at once hardly find the same; below the ephemeral ports."""
    for _ in range(100):
        port = random.randrange(21000, 32000)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise RuntimeError("no free port below 32000")
