"""A daemon that is healthy and says what a test wants: gRPC without a model."""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from concurrent import futures
from typing import Any, ClassVar

import grpc

from tests.http.front import Front
from tests.real_programs import RealProgramsTest

SERVING = b"\x08\x01"  # a HealthCheckResponse


def field(number: int, content: bytes) -> bytes:
    """Of a message of protobuf; no more than 127 bytes."""
    return bytes((number << 3 | 2, len(content))) + content


def status_details(code: int, kind: bytes, detail: bytes) -> tuple[tuple[str, bytes]]:
    """Of an error: trailing metadata with the one detail, google.rpc.KIND."""
    any_of_it = field(1, b"type.googleapis.com/google.rpc." + kind) + field(2, detail)
    return (("grpc-status-details-bin", bytes((1 << 3, code)) + field(3, any_of_it)),)


def until_cancelled(context: Any) -> None:
    ended = futures.Future[None]()
    if context.add_callback(lambda: ended.set_result(None)):
        ended.result()


def watch_health(_: bytes, context: Any) -> Iterator[bytes]:
    yield SERVING
    until_cancelled(context)


class ScriptedDaemon(grpc.GenericRpcHandler):
    """Methods by their names; `streams` give bytes one after the other, `unary` ones give them at once."""

    def __init__(self, unary: Mapping[str, Callable[..., bytes]], streams: Mapping[str, Callable[..., Iterator[bytes]]]):
        self._methods = {name: grpc.unary_unary_rpc_method_handler(each) for name, each in unary.items()}
        for name, each in {"/grpc.health.v1.Health/Watch": watch_health, **streams}.items():
            self._methods[name] = grpc.unary_stream_rpc_method_handler(each)

    def service(self, details: Any) -> Any:
        return self._methods.get(details.method)


@contextlib.contextmanager
def serving(daemon: ScriptedDaemon, host: str = "127.0.0.1") -> Iterator[str]:
    """Its address. Like moed it takes whatever pings come."""
    options = [("grpc.http2.max_ping_strikes", 0)]
    server = grpc.server(futures.ThreadPoolExecutor(8), handlers=[daemon], options=options)
    port = server.add_insecure_port(f"{host}:0")
    server.start()
    try:
        yield f"{host}:{port}"
    finally:
        server.stop(None).wait()


class ScriptedDaemonTest(RealProgramsTest):
    """One scripted daemon, and one moed-http in front of it, for all tests of a class."""

    model_name: ClassVar[str] = "scripted"
    daemon_address: ClassVar[str]
    front: ClassVar[Front]

    @classmethod
    def script(cls) -> ScriptedDaemon:
        raise NotImplementedError

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        cls.daemon_address = cls.enterClassContext(serving(cls.script()))
        front = Front(cls.binaries, cls.daemon_address, "--model-name", cls.model_name)
        cls.front = cls.enterClassContext(contextlib.closing(front))
        cls.front.wait_until_ready()
