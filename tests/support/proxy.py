"""A TCP proxy on loopback that loses what it is told to lose: the reply to the next COMMIT, or whole connections."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from tests.support.ports import free_port

COMMIT = b"COMMIT"


class Proxy:
    """Forwards to one port. `swallow_commits` replies to COMMIT are lost after the server has sent them."""

    def __init__(self, target: int) -> None:
        self.target = target
        self.port = free_port()
        self.swallow_commits = 0
        self.committing = COMMIT
        """What a message that commits has in it."""
        self.swallowed = 0
        self.hangs = False
        """Whether new connections hang, too."""
        self._hung: set[tuple[socket.socket, socket.socket]] = set()
        self._pairs: set[tuple[socket.socket, socket.socket]] = set()
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", self.port))
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self._accepting.start()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._accepting.join(5)
        self.cut()

    def cut(self) -> None:
        """Reset every connection."""
        with self._lock:
            pairs = list(self._pairs)
        for pair in pairs:
            self._reset(pair)

    def hang(self) -> None:
        """Carry no more bytes on the connections that are open. They stay open, and the kernel acknowledges what it gets."""
        with self._lock:
            self._hung.update(self._pairs)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(("127.0.0.1", self.target))
            except OSError:  # the server is away: its clients are to see that, and to find it when it is back
                client.close()
                continue
            pair = (client, server)
            with self._lock:
                self._pairs.add(pair)
                if self.hangs:
                    self._hung.add(pair)
            lost = threading.Event()
            threading.Thread(target=self._to_server, args=(pair, lost), daemon=True).start()
            threading.Thread(target=self._to_client, args=(pair, lost), daemon=True).start()

    def _to_server(self, pair: tuple[socket.socket, socket.socket], lost: threading.Event) -> None:
        client, server = pair
        try:
            while data := client.recv(65536):
                if pair in self._hung:
                    continue
                if self.committing in data and self.swallow_commits > 0:
                    self.swallow_commits -= 1
                    lost.set()
                server.sendall(data)
        except OSError:
            pass
        self._reset(pair)

    def _to_client(self, pair: tuple[socket.socket, socket.socket], lost: threading.Event) -> None:
        client, server = pair
        try:
            while data := server.recv(65536):
                if pair in self._hung:
                    continue
                if lost.is_set():  # the server has done it and said so; nobody hears
                    self.swallowed += 1
                    break
                client.sendall(data)
        except OSError:
            pass
        self._reset(pair)

    def _reset(self, pair: tuple[socket.socket, socket.socket]) -> None:
        with self._lock:
            if pair not in self._pairs:
                return
            self._pairs.discard(pair)
            self._hung.discard(pair)
        for end in pair:
            try:
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            end.close()


@contextmanager
def proxied(url: str) -> Iterator[tuple[str, Proxy]]:
    """The same database, through a proxy: its URL and the proxy."""
    head, _, tail = url.rpartition("@")
    address, _, database = tail.partition("/")
    host, _, port = address.partition(":")
    proxy = Proxy(int(port))
    try:
        yield f"{head}@{host}:{proxy.port}/{database}", proxy
    finally:
        proxy.close()
