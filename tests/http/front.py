"""moed-http as a child process in front of a daemon."""

import contextlib
import http.client
import json
import os
import pathlib
import re
import socket
import ssl
from collections.abc import Iterator
from typing import Any

from tools.daemon import Daemon
from tools.server_process import ServerError, ServerProcess

CALL_SECONDS = 300


class Front(ServerProcess):
    """A running moed-http on a port of its own choice."""

    def __init__(self, binaries: pathlib.Path, server: str, *flags: object, context: ssl.SSLContext | None = None):
        """Returns when it listens. `context`: of the clients, where it speaks TLS."""
        self._context = context
        command = [str(binaries / "moed-http"), "--server", server, "--listen", "127.0.0.1:0", *map(str, flags)]
        super().__init__(command, {"MOED_HTTP_DRAIN_DELAY_SECONDS": "0", **os.environ})
        try:
            self.address = self.wait_for_line(r"listening on https?://(127\.0\.0\.1:\d+)")
        except ServerError:
            self.close()
            raise

    @property
    def port(self) -> int:
        return int(self.address.rsplit(":", 1)[1])

    def inference_address(self) -> str:
        """Of --listen-inference."""
        return self.wait_for_line(r"listening on grpc://(127\.0\.0\.1:\d+)")

    def wait_until_ready(self) -> None:
        self.wait_for(lambda: self.get("/readyz")[0] == 200, "moed-http to be ready")

    def get(self, path: str, headers: dict[str, str] | None = None) -> tuple[int, bytes]:
        return self.request("GET", path, None, headers)

    def metrics(self) -> str:
        status, body = self.get("/metrics")
        assert status == 200, body
        return body.decode()

    def metric(self, series: str) -> float:
        """0 where there is no such series."""
        found = re.search(rf"^{re.escape(series)} (\S+)$", self.metrics(), re.M)
        return float(found[1]) if found else 0

    def post(self, path: str, body: Any, headers: dict[str, str] | None = None) -> tuple[int, Any]:
        """With the body as JSON, unless it is bytes; and the answer's JSON."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        status, answer = self.request("POST", path, data, {"content-type": "application/json", **(headers or {})})
        return status, json.loads(answer)

    def request(self, method: str, path: str, body: bytes | None, headers: dict[str, str] | None) -> tuple[int, bytes]:
        with contextlib.closing(self.connection()) as connection:
            connection.request(method, path, body, headers or {})
            with connection.getresponse() as answer:
                return answer.status, answer.read()

    @contextlib.contextmanager
    def stream(self, path: str, body: Any) -> Iterator[http.client.HTTPResponse]:
        """An answer whose head has come."""
        with contextlib.closing(self.connection()) as connection:
            connection.request("POST", path, json.dumps(body).encode(), {"content-type": "application/json"})
            with connection.getresponse() as answer:
                yield answer

    def connection(self) -> http.client.HTTPConnection:
        """A new one, that the caller closes."""
        if self._context is None:
            return http.client.HTTPConnection(self.address, timeout=CALL_SECONDS)
        return http.client.HTTPSConnection(self.address, timeout=CALL_SECONDS, context=self._context)

    def requests_logged(self) -> list[dict[str, Any]]:
        """The lines of the access log."""
        lines = (line.partition(" access ")[2] for line in self.log().splitlines())
        return [json.loads(line) for line in lines if line]


@contextlib.contextmanager
def front_of_nobody(binaries: pathlib.Path, *flags: object) -> Iterator[Front]:
    """Where its daemon should be connections are refused, and nobody else can listen: what it would ask for gets 503."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        with contextlib.closing(Front(binaries, f"127.0.0.1:{held.getsockname()[1]}", *flags)) as front:
            yield front


@contextlib.contextmanager
def front_of(daemon: Daemon, *flags: object, context: ssl.SSLContext | None = None) -> Iterator[Front]:
    """A moed-http that is ready."""
    front = Front(daemon.binaries, daemon.address, *flags, context=context)
    try:
        front.wait_until_ready()
        yield front
    finally:
        front.close()
