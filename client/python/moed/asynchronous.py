"""The client for asyncio: every method as of Client, awaited or iterated with `async for`."""

from collections.abc import AsyncIterator, Sequence
from types import TracebackType
from typing import Self, Unpack

import grpc.aio
from moe.v1 import inference_pb2 as pb
from moe.v1.inference_pb2_grpc import InferenceStub

from moed.connection import Connection, Tls
from moed.requests import Message, Options, chat_request, generate_request


class AsyncClient:
    """`async with AsyncClient(...) as client`, within a running loop."""

    def __init__(self, server: str = "127.0.0.1:50051", *, tls: Tls | None = None, token: str | None = None):
        self._connection = Connection(server, tls, token)
        options = self._connection.options()
        self._channel = (
            grpc.aio.secure_channel(server, tls.credentials(), options) if tls else grpc.aio.insecure_channel(server, options)
        )
        self._stub = InferenceStub(self._channel)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.close()

    async def close(self) -> None:
        await self._channel.close()

    async def generate(
        self, prompt: str | Sequence[int], *, deadline: float | None = None, **options: Unpack[Options]
    ) -> pb.GenerateResponse:
        request = generate_request(prompt, options)
        response: pb.GenerateResponse = await self._stub.Generate(request, timeout=deadline, metadata=self._metadata(request))
        return response

    async def generate_stream(
        self, prompt: str | Sequence[int], *, deadline: float | None = None, **options: Unpack[Options]
    ) -> AsyncIterator[pb.GenerateResponse]:
        request = generate_request(prompt, options)
        call = self._stub.GenerateStream(request, timeout=deadline, metadata=self._metadata(request))
        try:
            async for response in call:
                yield response
        finally:
            call.cancel()

    async def chat(
        self, messages: Sequence[Message], *, deadline: float | None = None, **options: Unpack[Options]
    ) -> pb.ChatResponse:
        request = chat_request(messages, options)
        response: pb.ChatResponse = await self._stub.Chat(request, timeout=deadline, metadata=self._metadata(request))
        return response

    async def chat_stream(
        self, messages: Sequence[Message], *, deadline: float | None = None, **options: Unpack[Options]
    ) -> AsyncIterator[pb.ChatResponse]:
        request = chat_request(messages, options)
        call = self._stub.ChatStream(request, timeout=deadline, metadata=self._metadata(request))
        try:
            async for response in call:
                yield response
        finally:
            call.cancel()

    async def tokenize(self, text: str) -> list[int]:
        answer = await self._stub.Tokenize(pb.TokenizeRequest(text=text), metadata=self._connection.metadata(""))
        return list(answer.token_ids)

    async def delete_session(self, session_id: str) -> None:
        request = pb.DeleteSessionRequest(session_id=session_id)
        await self._stub.DeleteSession(request, metadata=self._connection.metadata(session_id))

    def _metadata(self, request: pb.GenerateRequest | pb.ChatRequest) -> list[tuple[str, str]]:
        return self._connection.metadata(request.session_id)
