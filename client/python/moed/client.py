"""The client that blocks. It may be used from several threads."""

from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Any, Self, Unpack

import grpc
from moe.v1 import inference_pb2 as pb
from moe.v1.inference_pb2_grpc import InferenceStub

from moed.connection import Connection, Tls
from moed.requests import Message, Options, chat_request, generate_request


class Client:
    """A connection to a moed; `with Client(...) as client` closes it. `deadline` of a call is in seconds."""

    def __init__(self, server: str = "127.0.0.1:50051", *, tls: Tls | None = None, token: str | None = None):
        self._connection = Connection(server, tls, token)
        options = self._connection.options()
        self._channel = grpc.secure_channel(server, tls.credentials(), options) if tls else grpc.insecure_channel(server, options)
        self._stub = InferenceStub(self._channel)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        self._channel.close()

    def generate(
        self, prompt: str | Sequence[int], *, deadline: float | None = None, **options: Unpack[Options]
    ) -> pb.GenerateResponse:
        """The whole answer."""
        request = generate_request(prompt, options)
        response: pb.GenerateResponse = self._stub.Generate(request, timeout=deadline, metadata=self._metadata(request))
        return response

    def generate_stream(
        self, prompt: str | Sequence[int], *, deadline: float | None = None, **options: Unpack[Options]
    ) -> Iterator[pb.GenerateResponse]:
        """The answer as it comes; the last message has `finish`. Closing the iterator cancels the request."""
        request = generate_request(prompt, options)
        yield from self._stream(self._stub.GenerateStream(request, timeout=deadline, metadata=self._metadata(request)))

    def chat(self, messages: Sequence[Message], *, deadline: float | None = None, **options: Unpack[Options]) -> pb.ChatResponse:
        """The answer to a conversation."""
        request = chat_request(messages, options)
        response: pb.ChatResponse = self._stub.Chat(request, timeout=deadline, metadata=self._metadata(request))
        return response

    def chat_stream(
        self, messages: Sequence[Message], *, deadline: float | None = None, **options: Unpack[Options]
    ) -> Iterator[pb.ChatResponse]:
        request = chat_request(messages, options)
        yield from self._stream(self._stub.ChatStream(request, timeout=deadline, metadata=self._metadata(request)))

    def tokenize(self, text: str) -> list[int]:
        answer = self._stub.Tokenize(pb.TokenizeRequest(text=text), metadata=self._connection.metadata(""))
        return list(answer.token_ids)

    def delete_session(self, session_id: str) -> None:
        """Forgets a conversation; NOT_FOUND where it is not kept."""
        request = pb.DeleteSessionRequest(session_id=session_id)
        self._stub.DeleteSession(request, metadata=self._connection.metadata(session_id))

    def _metadata(self, request: pb.GenerateRequest | pb.ChatRequest) -> list[tuple[str, str]]:
        return self._connection.metadata(request.session_id)

    @staticmethod
    def _stream(call: Any) -> Iterator[Any]:
        try:
            yield from call
        finally:
            call.cancel()
