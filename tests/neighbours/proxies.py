"""Real nginx and real Caddy on loopback, with the configurations of the page on reverse proxies: what `make neighbours` installs."""

from __future__ import annotations

import os
import re
import shutil
import ssl
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests.docs.blocks import blocks_of
from tests.support.ports import free_port

PAGE = Path(__file__).parent.parent.parent / "docs" / "howto" / "reverse-proxy.md"
WHERE = f"{os.environ.get('PATH', '')}:/usr/sbin"
PATIENCE = 60.0


def block(title: str) -> str:
    """A configuration of the page."""
    return next(each.text for each in blocks_of(PAGE) if each.title == title)


def certificate(folder: Path) -> None:
    """A self-signed certificate for localhost."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    (folder / "penstock.crt").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    secret = serialization.PrivateFormat.PKCS8
    (folder / "penstock.key").write_bytes(
        key.private_bytes(serialization.Encoding.PEM, secret, serialization.NoEncryption())
    )


class Proxy:
    """A proxy in front of one service."""

    def __init__(self, folder: Path, port: int, plain_port: int) -> None:
        self.folder = folder
        self.url = f"https://localhost:{port}"
        self.plain_url = f"http://127.0.0.1:{plain_port}"
        self._trusted = ssl.create_default_context(cafile=str(folder / "penstock.crt"))

    def client(self, source: str, **headers: str) -> httpx.Client:
        """A client with an address of its own that believes the certificate."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        transport = httpx.HTTPTransport(verify=self._trusted, local_address=source)
        return httpx.Client(base_url=self.url, transport=transport, headers=named, timeout=PATIENCE)


@contextmanager
def running(program: str, title: str, service: str) -> Iterator[Proxy]:
    """The proxy with a configuration of the page. Only names, ports and paths are replaced by this machine's."""
    found = shutil.which(program, path=WHERE)
    if found is None:
        raise RuntimeError(f"{program} is not installed. Run: make neighbours")
    folder = Path(tempfile.mkdtemp(prefix=f"penstock-{program}-"))
    certificate(folder)
    port, plain_port = free_port(), free_port()
    text = block(title).replace("127.0.0.1:8080", service).replace("/etc/ssl/", f"{folder}/")
    command = {"nginx": _nginx, "caddy": _caddy}[program](found, folder, text, port, plain_port)
    log = folder / "log"
    environment = {**os.environ, "HOME": str(folder), "XDG_DATA_HOME": str(folder), "XDG_CONFIG_HOME": str(folder)}
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, cwd=folder, env=environment)
    try:
        proxy = Proxy(folder, port, plain_port)
        _wait(proxy, process, log)
        yield proxy
    finally:
        process.terminate()
        process.wait(PATIENCE)
        shutil.rmtree(folder, ignore_errors=True)


def _nginx(program: str, folder: Path, text: str, port: int, plain_port: int) -> list[str]:
    text = re.sub(r"server_name \S+;", "server_name localhost;", text)
    text = text.replace("listen 443 ssl", f"listen 127.0.0.1:{port} ssl").replace(
        "listen 80;", f"listen 127.0.0.1:{plain_port};"
    )
    kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    temporary = "\n".join(f"{kind}_temp_path {folder}/{kind};" for kind in kinds)
    user = "user root root;" if os.geteuid() == 0 else ""
    (folder / "nginx.conf").write_text(
        f"{user} daemon off; pid {folder}/pid; error_log stderr;\nevents {{}}\n"
        f"http {{\naccess_log off;\n{temporary}\n{text}\n}}\n"
    )
    return [program, "-e", "stderr", "-p", str(folder), "-c", str(folder / "nginx.conf")]


def _caddy(program: str, folder: Path, text: str, port: int, plain_port: int) -> list[str]:
    text = re.sub(r"^\S*example\.com \{", f"https://localhost:{port} {{", text, flags=re.M)
    (folder / "Caddyfile").write_text(
        f"{{\n    admin off\n    http_port {plain_port}\n    skip_install_trust\n}}\n{text}"
    )
    return [program, "run", "--adapter", "caddyfile", "--config", str(folder / "Caddyfile")]


def _wait(proxy: Proxy, process: subprocess.Popen[bytes], log: Path) -> None:
    until = time.monotonic() + PATIENCE
    with proxy.client("127.0.0.1") as client:
        while True:
            try:
                client.get("/health/live")
                return
            except httpx.TransportError as error:
                if process.poll() is not None or time.monotonic() > until:
                    raise RuntimeError(f"the proxy did not start:\n{log.read_text()}") from error
                time.sleep(0.05)
