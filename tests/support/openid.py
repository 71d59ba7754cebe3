"""A real OpenID provider beside us: django-oauth-toolkit in a process of its own, on a port of its own."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from tests.support.ports import free_port

ROOT = Path(__file__).parent.parent.parent
CALLBACK = "/api/v1/sign-in/oidc/callback"
CLIENT = "penstock"
SECRET = "s3cret of:the/client+1, with signs that Basic must encode %"


def client(home: str, id: str = CLIENT, secret: str | None = SECRET, **given: Any) -> dict[str, Any]:
    """What is registered at the provider for a Penstock whose public URL is `home`."""
    return {
        "id": id, "secret": secret, "redirect_uri": home + CALLBACK, "home": home + "/", "trusted": True,
        "algorithm": "RS256", **given,
    }  # fmt: skip


class OpenIdProvider:
    """Runs until `stop`. Everybody's password is `pw`."""

    def __init__(self, users: Mapping[str, Sequence[str]], clients: Sequence[Mapping[str, Any]]) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="penstock-openid-"))
        self.port = free_port()
        self.origin = f"http://localhost:{self.port}"
        self.issuer = f"{self.origin}/o"
        key = rsa.generate_private_key(public_exponent=65537, key_size=2048).private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        config = {"port": self.port, "key": key.decode(), "users": dict(users), "clients": list(clients)}
        (self.folder / "config.json").write_text(json.dumps(config))
        with (self.folder / "log").open("w") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.support.django_provider", str(self.folder)], cwd=ROOT, text=True,
                stdout=subprocess.PIPE, stderr=log,
            )  # fmt: skip
        assert self._process.stdout is not None
        said = self._process.stdout.readline()
        assert said == "ready\n", (self.folder / "log").read_text()

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(120)
        assert self._process.stdout is not None
        self._process.stdout.close()
        shutil.rmtree(self.folder)
