"""Requests of moe.v1.Inference from keyword arguments."""

from collections.abc import Sequence
from typing import TypedDict

from moe.v1 import inference_pb2 as pb

SAMPLING = {field.name for field in pb.Sampling.DESCRIPTOR.fields}
STOPPING = {field.name for field in pb.Stopping.DESCRIPTOR.fields} - {"time_limit"}
RESPONSE = {field.name for field in pb.ResponseOptions.DESCRIPTOR.fields}
FORMAT = {field.name for field in pb.OutputFormat.DESCRIPTOR.fields}
DIRECT = {"request_id", "session_id", "must_exist", "expected_tokens"}


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


class Message(TypedDict):
    role: str
    content: str


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
        elif name in DIRECT:
            target = request
        elif name == "time_limit":
            request.stopping.time_limit.FromNanoseconds(round(options["time_limit"] * 1e9))
            continue
        else:
            raise TypeError(f"unknown option {name!r}; there are {', '.join(sorted(Options.__annotations__))}")
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


def chat_request(messages: Sequence[Message], options: Options) -> pb.ChatRequest:
    request = pb.ChatRequest()
    for message in messages:
        request.messages.add(role=message["role"]).content.add(text=message["content"])
    fill(request, options)
    return request
