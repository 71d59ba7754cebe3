"""Where a peer lives: its virtual environment, made once, and a fresh database for each measurement."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
from tests.support.postgres import Server, free_port

from bench.peers import Peer

ROOT = Path(__file__).parent.parent


class Missing(Exception):
    """A peer that cannot take part, and why."""


def cache() -> Path:
    found = os.environ.get("PENSTOCK_BENCH_CACHE")
    return Path(found) if found else Path.home() / ".cache" / "penstock-bench"


def interpreter(peer: Peer) -> str:
    """The Python of a peer's own environment, which is made and filled on first use."""
    if not peer.requirements:
        return sys.executable
    base = _python(peer)
    digest = hashlib.sha256(repr((peer.requirements, base)).encode()).hexdigest()[:8]
    home = cache() / f"{peer.name}-{digest}"
    python = home / "bin" / "python"
    if not (home / "complete").exists():
        shutil.rmtree(home, ignore_errors=True)
        home.parent.mkdir(parents=True, exist_ok=True)
        _quietly([base, "-m", "venv", str(home)], "its virtual environment could not be made")
        install = [str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check", *peer.requirements]
        _quietly(install, f"pip could not install {' '.join(peer.requirements)}")
        (home / "complete").touch()
    return str(python)


def _python(peer: Peer) -> str:
    """A Python that is new enough for this peer: ours, or the first on the path or in pyenv that is."""
    if sys.version_info[:2] >= peer.python:
        return sys.executable
    named = [shutil.which(f"python3.{minor}") for minor in range(peer.python[1], peer.python[1] + 4)]
    kept = sorted(Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")).glob("versions/3.*/bin/python3"))
    for candidate in [*(name for name in named if name), *map(str, kept)]:
        asked = subprocess.run(
            [candidate, "-c", "import sys; print(*sys.version_info[:2])"], capture_output=True, text=True
        )
        if asked.returncode == 0 and tuple(map(int, asked.stdout.split())) >= peer.python:
            return candidate
    raise Missing(f"it needs Python {peer.python[0]}.{peer.python[1]}, and there is none here")


def _quietly(command: list[str], complaint: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    if done.returncode:
        last = [line for line in done.stderr.strip().splitlines() if line.startswith("ERROR")] or [done.stderr[-200:]]
        raise Missing(f"{complaint}: {last[-1].strip()}")


def version(peer: Peer) -> str:
    code = f"from importlib.metadata import version; print(version({peer.distribution!r}))"
    done = subprocess.run([interpreter(peer), "-c", code], capture_output=True, text=True)
    return done.stdout.strip() or "unknown"


class Databases:
    """Fresh databases of each kind. PostgreSQL and Redis are started when first asked for, and stopped at the end."""

    def __init__(self) -> None:
        self._postgres: Server | None = None
        self._redis: Redis | None = None
        self._directory = Path(tempfile.mkdtemp(prefix="penstock-bench-"))
        self._made = 0

    @property
    def postgres(self) -> Server:
        if self._postgres is None:
            self._postgres = Server(durable=True, settings={"timezone": "UTC"}).start()
        return self._postgres

    @property
    def redis(self) -> Redis:
        if self._redis is None:
            self._redis = Redis(self._directory)
        return self._redis

    @contextmanager
    def fresh(self, database: str) -> Iterator[str]:
        """The URL of an empty database, which goes when the block ends."""
        self._made += 1
        if database == "postgresql":
            name = self.postgres.create_database()
            try:
                yield self.postgres.url(name)
            finally:
                self.postgres.drop_database(name)
                self.postgres.execute("CHECKPOINT")  # the next measurement must not pay for this one
        elif database == "redis":
            self.redis.flush()
            yield self.redis.url
        else:
            directory = self._directory / str(self._made)
            directory.mkdir()
            yield f"sqlite:///{directory}/bench.db"
            shutil.rmtree(directory)

    def close(self) -> None:
        if self._postgres is not None:
            self._postgres.remove()
        if self._redis is not None:
            self._redis.stop()
        shutil.rmtree(self._directory, ignore_errors=True)


class Redis:
    """A Redis with the durability that its manual recommends: what it acknowledged in the last second may be lost."""

    def __init__(self, directory: Path) -> None:
        binary = shutil.which("redis-server") or _installed_redis()
        self.port = free_port()
        self.url = f"redis://127.0.0.1:{self.port}/0"
        command = [
            binary, "--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(directory), "--appendonly", "yes",
            "--appendfsync", "everysec", "--save", "",
        ]  # fmt: skip
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for _ in range(200):
            try:
                self.ask("PING")
                return
            except OSError:
                time.sleep(0.05)
        raise Missing("redis-server did not start")

    def ask(self, *words: str) -> str:
        with socket.create_connection(("127.0.0.1", self.port), timeout=30) as link:
            link.sendall(f"*{len(words)}\r\n".encode() + b"".join(f"${len(w)}\r\n{w}\r\n".encode() for w in words))
            return link.recv(65536).decode()

    def flush(self) -> None:
        self.ask("FLUSHALL")

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(10)


def _installed_redis() -> str:
    if os.geteuid() == 0 and shutil.which("apt-get"):
        subprocess.run(["apt-get", "install", "-y", "-q", "redis-server"], capture_output=True, timeout=300)
    found = shutil.which("redis-server")
    if found is None:
        raise Missing("there is no redis-server; install it (Debian: apt-get install redis-server)")
    return found


def count_remaining(peer: Peer, url: str) -> int:
    """Jobs that are not finished, asked of the database itself."""
    assert peer.remaining is not None
    if url.startswith("sqlite"):
        with sqlite3.connect(url.removeprefix("sqlite:///"), timeout=30) as lite:
            return int(lite.execute(peer.remaining).fetchone()[0])
    with psycopg.connect(url) as conn:
        row = conn.execute(peer.remaining).fetchone()  # type: ignore[call-overload]
        return int(row[0])


def peer_environment(**more: str) -> dict[str, str]:
    """What a peer's process sees: no trace of our own virtual environment."""
    env = {key: value for key, value in os.environ.items() if key not in ("VIRTUAL_ENV", "PYTHONPATH", "PYTHONHOME")}
    return {**env, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'src'}", "PYTHONDONTWRITEBYTECODE": "1", **more}


def call(peer: Peer, verb: str, url: str, *numbers: float, timeout: float = 300, **env: str) -> float | None:
    """Run one verb of a peer's file to its end; the answer."""
    command = [interpreter(peer), "-m", "bench.peers.kit", peer.name, verb, url, *(str(number) for number in numbers)]
    try:
        done = subprocess.run(
            command, cwd=ROOT, env=peer_environment(**env), capture_output=True, text=True, timeout=timeout
        )
    except subprocess.TimeoutExpired as error:
        raise Missing(f"{verb} was not done after {timeout:g} s") from error
    if done.returncode:
        raise Missing(f"{verb} failed: {(done.stderr.strip().splitlines() or ['no message'])[-1][:300]}")
    answer: float | None = json.loads(done.stdout.strip().splitlines()[-1])["answer"]
    return answer
