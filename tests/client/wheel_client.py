"""What people write with the wheel of the Python client; wheel_test.py runs it in a virtual environment. usage: SERVER"""

import asyncio
import inspect
import pathlib
import sys
from typing import get_type_hints

import grpc
from moe.v1 import inference_pb2

import moed

PROMPT = "Once upon a time"
OPTIONS = moed.Options(max_new_tokens=12, ignore_eos=True, temperature=0)
LONG = moed.Options(max_new_tokens=500, ignore_eos=True, temperature=0)  # comes in more messages than one


def refused(code: grpc.StatusCode, error: grpc.RpcError) -> None:
    assert isinstance(error, grpc.Call), error
    assert error.code() == code, error


def blocking(server: str) -> str:
    with moed.Client(server) as client:
        whole = client.generate(PROMPT, **OPTIONS)
        streamed = list(client.generate_stream(PROMPT, **LONG))
        assert len(streamed) > 2, streamed
        assert "".join(part.text for part in streamed).startswith(whole.text)
        assert streamed[-1].finish.usage.completion_tokens == 500
        assert client.generate(client.tokenize(PROMPT), **OPTIONS).text == whole.text

        said = client.chat([{"role": "user", "content": PROMPT}], **OPTIONS)
        parts = list(client.chat_stream([{"role": "user", "content": PROMPT}], **OPTIONS))
        assert "".join(part.text for part in parts) == said.text
        assert said.text

        held = client.generate(PROMPT, session_id="kept", max_new_tokens=4).finish.session_tokens
        client.generate(" and", session_id="kept", must_exist=True, expected_tokens=held, max_new_tokens=4)
        client.delete_session("kept")
        try:
            client.generate(" and", session_id="kept", must_exist=True)
            raise AssertionError("a session that is gone was continued")
        except grpc.RpcError as error:
            refused(grpc.StatusCode.NOT_FOUND, error)
        try:
            client.generate(PROMPT, deadline=0.001, **LONG)
            raise AssertionError("a deadline passed unnoticed")
        except grpc.RpcError as error:
            refused(grpc.StatusCode.DEADLINE_EXCEEDED, error)
        shaped = client.generate(PROMPT, regex="(yes|no)", time_limit=60.0, stop_strings=["never"], logit_bias={3: -1.0})
        assert shaped.text in ("yes", "no"), shaped.text
    return str(whole.text)


async def asynchronous(server: str) -> str:
    async with moed.AsyncClient(server) as client:
        answers = await asyncio.gather(*(client.generate(PROMPT, **OPTIONS) for _ in range(3)))
        assert len({answer.text for answer in answers}) == 1
        parts = [part.text async for part in client.generate_stream(PROMPT, **OPTIONS)]
        assert "".join(parts) == answers[0].text
        said = await client.chat([{"role": "user", "content": PROMPT}], **OPTIONS)
        parts = [part.text async for part in client.chat_stream([{"role": "user", "content": PROMPT}], **OPTIONS)]
        assert "".join(parts) == said.text
        assert await client.tokenize(PROMPT)
    return str(answers[0].text)


def what_is_wrong_is_named() -> None:
    for wrong, word in (
        (lambda: moed.Client("10.0.0.1:50051", token="x"), "10.0.0.1"),
        (lambda: moed.Client("127.example.org:50051", token="x"), "127.example.org"),
        (lambda: moed.Client("localhost.example.org:50051", token="x"), "localhost.example.org"),
        (lambda: moed.Client().generate("x", temprature=1), "temprature"),  # type: ignore[call-arg]
    ):
        try:
            wrong()
            raise AssertionError(f"{word} was taken")
        except (TypeError, ValueError) as error:
            assert word in str(error), error
    for here in ("127.0.0.5:50051", "localhost:50051", "[::1]:50051", "unix:/run/moed"):
        moed.Client(here, token="x").close()


def both_have_the_same_methods() -> None:
    for name, method in inspect.getmembers(moed.Client, inspect.isfunction):
        if not name.startswith("_"):
            assert inspect.signature(method).parameters == inspect.signature(getattr(moed.AsyncClient, name)).parameters, name


def options_are_the_protocols() -> None:
    groups = (inference_pb2.Sampling, inference_pb2.Stopping, inference_pb2.ResponseOptions, inference_pb2.OutputFormat)
    fields = {field.name for group in groups for field in group.DESCRIPTOR.fields}
    assert fields <= set(get_type_hints(moed.Options)), fields
    assert (pathlib.Path(moed.__file__).parent / "py.typed").exists()


def main() -> None:
    (server,) = sys.argv[1:]
    assert "venv" in moed.__file__, moed.__file__
    options_are_the_protocols()
    both_have_the_same_methods()
    what_is_wrong_is_named()
    assert blocking(server) == asyncio.run(asynchronous(server))


if __name__ == "__main__":
    main()
