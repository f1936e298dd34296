"""Where a daemon is, and what it wants to see of who calls."""

import ipaddress
from dataclasses import dataclass

import grpc


def _is_here(server: str) -> bool:
    """Whether nothing leaves this machine on the way to `server`. Names but localhost are whatever a resolver says."""
    if server.startswith("unix:"):
        return True
    host = server.rpartition(":")[0].removeprefix("[").removesuffix("]")
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _fits_metadata(value: str) -> bool:
    """As proto/metadata.h has it."""
    return 0 < len(value) <= 1024 and value.isascii() and value.isprintable() and value == value.strip()


@dataclass(frozen=True)
class Tls:
    """PEM itself, no path. Without `ca` the authorities that gRPC knows; certificate and key where the server wants them."""

    ca: bytes | None = None
    certificate: bytes | None = None
    key: bytes | None = None

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if value is not None and not isinstance(value, bytes):
                raise TypeError(
                    f"Tls: {name} is {type(value).__name__}: give the bytes of its PEM, as pathlib.Path(...).read_bytes()"
                )

    def credentials(self) -> grpc.ChannelCredentials:
        return grpc.ssl_channel_credentials(self.ca, self.key, self.certificate)


@dataclass(frozen=True)
class Connection:
    """`server` is host:port or unix:PATH. A token in plain text is shown to this machine alone."""

    server: str = "127.0.0.1:50051"
    tls: Tls | None = None
    token: str | None = None

    def __post_init__(self) -> None:
        if self.token and not self.tls and not _is_here(self.server):
            raise ValueError(f"a token in plain text to {self.server}: give tls=Tls(ca=...)")

    def options(self) -> list[tuple[str, int]]:
        """Of a channel: a lost machine is noticed during a long silent prefill, and nobody stands between this one and itself."""
        found = [
            ("grpc.keepalive_time_ms", 20_000),
            ("grpc.keepalive_timeout_ms", 20_000),
            ("grpc.http2.max_pings_without_data", 0),
            ("grpc.max_receive_message_length", 64 << 20),
        ]
        return [*found, ("grpc.enable_http_proxy", 0)] if _is_here(self.server) else found

    def metadata(self, session_id: str) -> list[tuple[str, str]]:
        """The session's name is there for proxies, which choose the daemon that keeps it, where it can go so."""
        found = [("authorization", f"Bearer {self.token}")] if self.token else []
        if _fits_metadata(session_id):
            found.append(("moe-session-id", session_id))
        return found
