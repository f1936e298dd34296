"""What people write with the wheel of the Python client; wheel_test.py runs it in a virtual environment. usage: SERVER"""

import asyncio
import inspect
import json
import pathlib
import sys
from typing import Any, get_type_hints

import grpc
from moe.v1 import inference_pb2

import moed
from moed.connection import Connection
from moed.requests import chat_request

PROMPT = "Once upon a time"
OPTIONS = moed.Options(max_new_tokens=12, ignore_eos=True, temperature=0)
LONG = moed.Options(max_new_tokens=500, ignore_eos=True, temperature=0)  # comes in more messages than one

PARTS_OF_OPENAI: Any = {"role": "user", "content": [{"text": "x"}, {"type": "text", "text": "x"}]}
CALL_OF_OPENAI: Any = {"role": "assistant", "tool_calls": [{"type": "function", "function": {"name": "f"}}]}


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
        exact = moed.Options(fidelity={"kind": "EXACT"}, priority="PRIORITY_HIGH", **OPTIONS)
        parts = list(client.chat_stream([{"role": "user", "content": [{"text": PROMPT}]}], **exact))
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
        (lambda: moed.Client().generate("x", tools=[]), "unknown option 'tools'"),
        (lambda: moed.Client().chat([{"role": "user", "text": "x"}]), "messages[0]: unknown key 'text'"),  # type: ignore[typeddict-unknown-key]
        (lambda: moed.Client().chat([PARTS_OF_OPENAI]), "messages[0].content[1]: unknown key 'type'; there are text"),
        (lambda: moed.Client().chat([CALL_OF_OPENAI]), "messages[0].tool_calls[0]: unknown key 'type'"),
        (lambda: moed.Client().chat([], tools=[{"name": "f", "schema": "{}"}]), "tools[0]: unknown key 'schema'"),  # type: ignore[typeddict-unknown-key]
        (lambda: moed.Client().generate("x", fidelity={"kind": "EXACT", "mass": 1}), "fidelity: unknown key 'mass'"),  # type: ignore[typeddict-unknown-key]
        (lambda: moed.Client().generate("x", fidelity="exact"), "fidelity: 'exact' is no dictionary of kind, max_gate_mass"),  # type: ignore[arg-type]
        (lambda: moed.Client().generate("x", priority="urgent"), "urgent"),  # type: ignore[arg-type]
        (lambda: moed.Tls(ca="ca.pem"), "Tls: ca is str: give the bytes of its PEM"),  # type: ignore[arg-type]
    ):
        try:
            wrong()
            raise AssertionError(f"{word} was taken")
        except (TypeError, ValueError) as error:
            assert word in str(error), error
    for here in ("127.0.0.5:50051", "localhost:50051", "[::1]:50051", "unix:/run/moed"):
        moed.Client(here, token="x").close()


def what_is_said_of_a_conversation_reaches_the_request() -> None:
    schema = {"type": "object", "properties": {"place": {"type": "string"}}}
    request = chat_request(
        [
            {"role": "user", "content": [{"text": "Weather"}, {"text": "?"}], "name": "Ann"},
            {
                "role": "assistant",
                "content": None,
                "reasoning": "Hm.",
                "tool_calls": [{"id": "c", "name": "w", "arguments": "{}"}],
            },
            {"role": "tool", "tool_call_id": "c", "content": "Rain"},
        ],
        {
            "tools": [{"name": "w", "description": "d", "parameters": schema, "strict": True}, {"name": "v"}],
            "tool_choice": {"kind": "FUNCTION", "name": "w"},
            "fidelity": {"kind": "BOUNDED", "max_gate_mass": 0.25},
            "priority": "PRIORITY_LOW",
            "template_variables": {"enable_thinking": False},
            "expected_tokens": 0,
        },
    )
    asked, called, told = request.messages
    assert ([part.text for part in asked.content], asked.name) == (["Weather", "?"], "Ann")
    assert not called.content
    assert (called.reasoning, called.tool_calls[0]) == ("Hm.", inference_pb2.ToolCall(id="c", name="w", arguments="{}"))
    assert (told.role, told.tool_call_id, told.content[0].text) == ("tool", "c", "Rain")
    assert json.loads(request.tools[0].parameters) == schema
    assert (request.tools[0].strict, request.tools[1].parameters) == (True, "")
    assert request.tool_choice == inference_pb2.ToolChoice(kind=inference_pb2.ToolChoice.FUNCTION, name="w")
    assert request.fidelity == inference_pb2.Fidelity(kind=inference_pb2.Fidelity.BOUNDED, max_gate_mass=0.25)
    assert (request.priority, request.HasField("expected_tokens")) == (inference_pb2.PRIORITY_LOW, True)
    assert json.loads(request.template_variables) == {"enable_thinking": False}


def proxies_are_told_of_sessions_that_metadata_can_hold() -> None:
    for session, goes in (
        ("s", True),
        ("of {a}", True),
        ("", False),
        (" s", False),
        ("s ", False),
        ("\u00e9", False),
        ("a\tb", False),
    ):
        assert Connection().metadata(session) == ([("moe-session-id", session)] if goes else []), session
    assert not Connection().metadata("x" * 1025)


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
    what_is_said_of_a_conversation_reaches_the_request()
    proxies_are_told_of_sessions_that_metadata_can_hold()
    assert blocking(server) == asyncio.run(asynchronous(server))


if __name__ == "__main__":
    main()
