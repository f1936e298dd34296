"""Client of moed: `Client` blocks, `AsyncClient` is for asyncio. Failures are grpc.RpcError, with code() and details()."""

from moed.asynchronous import AsyncClient
from moed.client import Client
from moed.connection import Connection, Tls
from moed.requests import ContentPart, Fidelity, Message, Options, Tool, ToolCall, ToolChoice

__all__ = [
    "AsyncClient",
    "Client",
    "Connection",
    "ContentPart",
    "Fidelity",
    "Message",
    "Options",
    "Tls",
    "Tool",
    "ToolCall",
    "ToolChoice",
]
