"""Client of moed: `Client` blocks, `AsyncClient` is for asyncio. Failures are grpc.RpcError, with code() and details()."""

from moed.asynchronous import AsyncClient
from moed.client import Client
from moed.connection import Connection, Tls
from moed.requests import Message, Options

__all__ = ["AsyncClient", "Client", "Connection", "Message", "Options", "Tls"]
