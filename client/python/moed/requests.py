"""Requests of moe.v1.Inference from keyword arguments."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Required, TypedDict

from moe.v1 import inference_pb2 as pb

SAMPLING = {field.name for field in pb.Sampling.DESCRIPTOR.fields}
STOPPING = {field.name for field in pb.Stopping.DESCRIPTOR.fields} - {"time_limit"}
RESPONSE = {field.name for field in pb.ResponseOptions.DESCRIPTOR.fields}
FORMAT = {field.name for field in pb.OutputFormat.DESCRIPTOR.fields}
DIRECT = {"request_id", "session_id", "must_exist", "expected_tokens", "fidelity", "priority"}
OF_CHAT = {"tools", "tool_choice", "template_variables"}


class Fidelity(TypedDict, total=False):
    kind: Required[Literal["EXACT", "BOUNDED", "FAST", "FAST_MATMUL"]]
    max_gate_mass: float


class Tool(TypedDict, total=False):
    name: Required[str]
    description: str
    parameters: str | Mapping[str, Any]
    """A JSON schema."""
    strict: bool


class ToolChoice(TypedDict, total=False):
    kind: Required[Literal["AUTO", "NONE", "REQUIRED", "FUNCTION"]]
    name: str
    at_most_one: bool


class Options(TypedDict, total=False):
    """What may be said of an answer. What is not given is the server's default (proto/moe/v1/inference.proto)."""

    temperature: float
    top_k: int
    top_p: float
    min_p: float
    repetition_penalty: float
    frequency_penalty: float
    presence_penalty: float
    seed: int
    logit_bias: dict[int, float]
    max_new_tokens: int
    min_new_tokens: int
    stop_strings: Sequence[str]
    stop_token_ids: Sequence[int]
    include_stop_string: bool
    ignore_eos: bool
    time_limit: float
    """Seconds."""
    logprobs: bool
    top_logprobs: int
    skip_special_tokens: bool
    return_prompt_tokens: bool
    prompt_logprobs: bool
    """Of generate: with the last message. max_new_tokens may be 0 then."""
    json_schema: str
    regex: str
    json_object: bool
    request_id: str
    session_id: str
    must_exist: bool
    expected_tokens: int
    """Of the session: what Finish.session_tokens was; 0 where it must be new."""
    fidelity: Fidelity
    priority: Literal["PRIORITY_HIGH", "PRIORITY_NORMAL", "PRIORITY_LOW"]
    tools: Sequence[Tool]
    """These three of chat."""
    tool_choice: ToolChoice
    template_variables: str | Mapping[str, Any]


class ContentPart(TypedDict):
    text: str


class ToolCall(TypedDict, total=False):
    id: str
    name: Required[str]
    arguments: str
    """A JSON object."""


class Message(TypedDict, total=False):
    """Of a conversation. What an assistant said may be sent back with its reasoning and its calls."""

    role: Required[str]
    content: str | Sequence[ContentPart] | None
    reasoning: str
    tool_calls: Sequence[ToolCall]
    tool_call_id: str
    name: str


def check_names(where: str, fields: Mapping[str, Any], message: Any) -> None:
    known = message.DESCRIPTOR.fields_by_name
    if not isinstance(fields, Mapping):
        raise TypeError(f"{where}: {fields!r} is no dictionary of {', '.join(known)}")
    for name in fields:
        if name not in known:
            raise TypeError(f"{where}: unknown key {name!r}; there are {', '.join(known)}")


def json_text(value: str | Mapping[str, Any]) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def tool_fields(where: str, tool: Tool) -> dict[str, Any]:
    check_names(where, tool, pb.Tool)
    return {**tool, "parameters": json_text(tool.get("parameters", ""))}


def direct_field(name: str, value: Any) -> Any:
    """Of a request, as the constructor of its message takes it."""
    if name == "tools":
        return [tool_fields(f"tools[{i}]", tool) for i, tool in enumerate(value)]
    if name == "template_variables":
        return json_text(value)
    if name in ("fidelity", "tool_choice"):
        check_names(name, value, pb.Fidelity if name == "fidelity" else pb.ToolChoice)
    return value


def fill(request: pb.GenerateRequest | pb.ChatRequest, options: Options) -> None:
    for name, value in options.items():
        if name in SAMPLING:
            target = request.sampling
        elif name in STOPPING:
            target = request.stopping
        elif name in RESPONSE:
            target = request.response
        elif name in FORMAT:
            target = request.format
        elif name in DIRECT or (name in OF_CHAT and isinstance(request, pb.ChatRequest)):
            request.MergeFrom(type(request)(**{name: direct_field(name, value)}))
            continue
        elif name == "time_limit":
            request.stopping.time_limit.FromNanoseconds(round(options["time_limit"] * 1e9))
            continue
        else:
            known = set(Options.__annotations__) - (set() if isinstance(request, pb.ChatRequest) else OF_CHAT)
            raise TypeError(f"unknown option {name!r}; there are {', '.join(sorted(known))}")
        if isinstance(value, dict):
            getattr(target, name).update(value)
        elif isinstance(value, Sequence) and not isinstance(value, str):
            getattr(target, name).extend(value)
        else:
            setattr(target, name, value)


def generate_request(prompt: str | Sequence[int], options: Options) -> pb.GenerateRequest:
    """Of a text, or of token ids, to which nothing is added."""
    request = pb.GenerateRequest()
    if isinstance(prompt, str):
        request.text = prompt
    else:
        request.token_ids.ids.extend(prompt)
    fill(request, options)
    return request


def message_fields(where: str, message: Message) -> dict[str, Any]:
    check_names(where, message, pb.ChatMessage)
    content = message.get("content") or ()
    parts = [ContentPart(text=content)] if isinstance(content, str) else content
    for i, part in enumerate(parts):
        check_names(f"{where}.content[{i}]", part, pb.ContentPart)
    for i, call in enumerate(message.get("tool_calls", ())):
        check_names(f"{where}.tool_calls[{i}]", call, pb.ToolCall)
    return {**message, "content": parts}


def chat_request(messages: Sequence[Message], options: Options) -> pb.ChatRequest:
    request = pb.ChatRequest()
    for i, message in enumerate(messages):
        request.messages.add(**message_fields(f"messages[{i}]", message))
    fill(request, options)
    return request
