"""A receiver of webhooks that misbehaves on request. It speaks bytes, so that it can lie."""

from __future__ import annotations

import random
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"


def listening_socket() -> socket.socket:
    """On a free port below the ephemeral range."""
    while True:
        try:
            return socket.create_server(("127.0.0.1", random.randrange(20_000, 32_000)))
        except OSError:
            continue


class Receiver:
    """`answers` are given in turn, the last one for ever; None hangs until the receiver is closed, and so does what follows an
    answer if it is to `stall`."""

    def __init__(
        self, *answers: bytes | None, drip: bool = False, stall: bool = False, tls: ssl.SSLContext | None = None
    ) -> None:
        self.tls = tls
        self.answers = list(answers) or [OK]
        self.drip = drip
        self.stall = stall
        self.requests: list[tuple[dict[str, str], bytes]] = []
        self._closing = threading.Event()
        self._threads: list[threading.Thread] = []
        self._server = listening_socket()
        self._server.settimeout(0.05)
        self.port = self._server.getsockname()[1]
        self._accepting = threading.Thread(target=self._accept)
        self._accepting.start()

    @property
    def url(self) -> str:
        return f"http{'s' if self.tls else ''}://127.0.0.1:{self.port}/hook?x=1"

    def _accept(self) -> None:
        while not self._closing.is_set():
            try:
                connection, _ = self._server.accept()
            except TimeoutError:
                continue
            thread = threading.Thread(target=self._welcome, args=(connection,))
            thread.start()
            self._threads.append(thread)

    def _welcome(self, connection: socket.socket) -> None:
        if self.tls is None:
            self._serve(connection)
            return
        try:
            self._serve(self.tls.wrap_socket(connection, server_side=True))
        except OSError:  # the other side did not like our certificate
            connection.close()

    def _serve(self, connection: socket.socket) -> None:
        with connection:
            connection.settimeout(60)
            try:
                self.requests.append(self._read(connection))
                answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
                if answer is None:
                    self._closing.wait(300)
                elif self.drip:
                    for byte in answer:
                        connection.sendall(bytes([byte]))
                        if self._closing.wait(0.05):
                            return
                else:
                    connection.sendall(answer)
                    if self.stall:
                        self._closing.wait(300)
            except OSError:
                return

    def _read(self, connection: socket.socket) -> tuple[dict[str, str], bytes]:
        data = b""
        while b"\r\n\r\n" not in data:
            data += connection.recv(65536)
        head, _, body = data.partition(b"\r\n\r\n")
        lines = head.decode().split("\r\n")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines[1:])}
        headers["request"] = lines[0]
        while len(body) < int(headers["content-length"]):
            body += connection.recv(65536)
        return headers, body

    def close(self) -> None:
        self._closing.set()
        self._accepting.join()
        for thread in self._threads:
            thread.join()
        self._server.close()


@contextmanager
def receiving(
    *answers: bytes | None, drip: bool = False, stall: bool = False, tls: ssl.SSLContext | None = None
) -> Iterator[Receiver]:
    receiver = Receiver(*answers, drip=drip, stall=stall, tls=tls)
    try:
        yield receiver
    finally:
        receiver.close()
