"""Conversations of many kinds, as the variables of a chat template. JSON alone: what a client may send."""

from typing import Any

Message = dict[str, Any]
AWKWARD = (
    "Straße ΟΔΟΣ ΑΣ. \u00a0\u2028x\u0085\x1c İstanbul ǆ 🙂👨‍👩‍👧 e\u0301 "
    "\t\"quoted\" 'single' \\n <|im_end|> {{ x }} {% y %} <think>no</think>\r\nlast\x7f\x01"
)

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Weather of a place.\nToday's, or of a day to come.",
        "parameters": {
            "type": "object",
            "properties": {
                "place": {"type": "string", "description": "City & country, <b>e.g.</b> 'Köln'"},
                "days": {"type": "integer", "description": "How many days ahead", "default": 3, "minimum": 0},
                "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]},
                "where": {
                    "type": "object",
                    "description": "Coordinates",
                    "properties": {"lat": {"type": "number"}, "lon": {"type": ["number", "null"]}},
                    "required": ["lat"],
                },
                "tags": {"type": "array", "items": {"type": "string"}, "description": "Labels"},
                "mixed": {"anyOf": [{"type": "string"}, {"type": "integer"}], "nullable": True},
            },
            "required": ["place"],
        },
        "return": {"type": "string", "description": "The weather"},
    },
}
CLOCK = {"type": "function", "function": {"name": "clock", "description": "", "parameters": {"type": "object", "properties": {}}}}
ODD_NUMBERS = {
    "type": "function",
    "function": {
        "name": "odd",
        "description": "Numbers",
        "parameters": {
            "type": "object",
            "properties": {"n": {"type": "number", "maximum": 18446744073709551615, "minimum": -1.5e-07, "multipleOf": 0.1}},
            "examples": [1e16, 1e22, 123456789.125, True, None, [], {}],
        },
    },
}
BARE_TOOL = {
    "name": "bare",
    "description": "no wrapper",
    "parameters": {"type": "object", "properties": {"a": {"type": "string"}}},
}


def user(content: Any) -> Message:
    return {"role": "user", "content": content}


def assistant(content: Any, **more: Any) -> Message:
    return {"role": "assistant", "content": content, **more}


def system(content: Any) -> Message:
    return {"role": "system", "content": content}


def call(name: str, arguments: Any, identifier: str = "call12345") -> Message:
    return {"type": "function", "id": identifier, "function": {"name": name, "arguments": arguments}}


def tool(content: Any, name: str = "get_weather", identifier: str = "call12345") -> Message:
    return {"role": "tool", "name": name, "tool_call_id": identifier, "content": content}


ASK = user("What is the weather in Köln?")
CALL = assistant(
    "", tool_calls=[call("get_weather", {"place": "Köln", "days": 2, "where": {"lat": 50.9, "lon": None}, "ok": True})]
)
CALL_NONE = assistant(None, tool_calls=[call("get_weather", {"place": "Köln"})])
CALL_TEXT = assistant("", tool_calls=[call("get_weather", '{"place": "Köln", "days": 2}')])
TWO_CALLS = assistant(
    "Let me look.",
    tool_calls=[call("get_weather", {"place": "A"}, "aaaaaaaaa"), call("clock", {}, "bbbbbbbbb")],
    reasoning_content="Two tools are needed.",
)
TURNS = [user("Hello"), assistant("Hi! How can I help?"), user("Tell me more.")]
REASONED = assistant("It is 4.", reasoning_content="2 + 2\nis 4", thinking="2 + 2\nis 4")


def conversations() -> dict[str, dict[str, Any]]:
    """By name; without what is the same for all."""
    return {
        "one user": {"messages": [user("Hello")]},
        "system": {"messages": [system("Be brief."), user("Hello")]},
        "developer": {"messages": [{"role": "developer", "content": "Be brief."}, user("Hello")]},
        "turns": {"messages": TURNS},
        "turns with a system": {"messages": [system("  Be brief.\n\n"), *TURNS]},
        "white space": {"messages": [system("\n \t"), user("  Hello \n\n"), assistant("\n\n hi \n"), user("\tbye\u00a0")]},
        "ends with the assistant": {"messages": [user("Hello"), assistant("Hi")]},
        "awkward": {"messages": [system(AWKWARD), user(AWKWARD), assistant(AWKWARD), user(AWKWARD)]},
        "long": {"messages": [*(TURNS[:2] * 20), user("end")]},
        "no messages": {"messages": []},
        "empty texts": {"messages": [user(""), assistant(""), user("")]},
        "content is null": {"messages": [user(None), assistant(None), user("x")]},
        "content is missing": {"messages": [{"role": "user"}, {"role": "assistant"}, user("x")]},
        "no role": {"messages": [{"content": "x"}]},
        "two users": {"messages": [user("a"), user("b")]},
        "two assistants": {"messages": [user("a"), assistant("b"), assistant("c"), user("d")]},
        "begins with the assistant": {"messages": [assistant("b"), user("d")]},
        "system in the middle": {"messages": [user("a"), system("now"), assistant("b"), user("c")]},
        "unknown role": {"messages": [user("a"), {"role": "narrator", "content": "b"}, user("c")]},
        "ipython": {"messages": [user("a"), assistant("b"), {"role": "ipython", "content": {"out": [1, 2.5]}}, user("c")]},
        "parts": {"messages": [user([{"type": "text", "text": "Look: "}, {"type": "text", "text": "here"}]), assistant("ok")]},
        "parts of all": {
            "messages": [
                system([{"type": "text", "text": "S"}]),
                user([{"type": "text", "text": "U"}]),
                assistant([{"type": "text", "text": "A"}]),
                user([{"type": "text", "text": "V"}]),
            ]
        },
        "images": {
            "messages": [
                user(
                    [
                        {"type": "image"},
                        {"type": "text", "text": "What is this?"},
                        {"type": "image_url", "image_url": {"url": "x"}},
                    ]
                ),
                assistant("A cat"),
                user([{"type": "video", "video": "v"}, {"type": "audio"}, {"type": "text", "text": "And?"}]),
            ]
        },
        "content is a number": {"messages": [user(17), assistant(2.5), user(True)]},
        "content is a dict": {"messages": [user({"a": [1, None, "x"], "b": {"c": True}})]},
        "reasoning": {"messages": [user("2 + 2?"), REASONED, user("And 3 + 3?")]},
        "reasoning at the end": {"messages": [user("2 + 2?"), REASONED]},
        "think in the text": {"messages": [user("2 + 2?"), assistant("<think>\n2 + 2\n</think>\n\nIt is 4."), user("3 + 3?")]},
        "broken think": {"messages": [user("2 + 2?"), assistant("4</think>5</think>6"), user("<think>")]},
        "reasoning off": {"messages": TURNS, "enable_thinking": False, "thinking": False, "reasoning_effort": "low"},
        "reasoning on": {"messages": TURNS, "enable_thinking": True, "thinking": True, "reasoning_effort": "high"},
        "effort": {"messages": TURNS, "reasoning_effort": "none", "model_identity": "You are M.", "builtin_tools": ["python"]},
        "tools": {"messages": [ASK], "tools": [WEATHER]},
        "tools with a system": {"messages": [system("Be brief."), ASK], "tools": [WEATHER, CLOCK]},
        "no tools": {"messages": [ASK], "tools": []},
        "tools are null": {"messages": [ASK], "tools": None},
        "bare tool": {"messages": [ASK], "tools": [BARE_TOOL]},
        "odd numbers": {"messages": [ASK], "tools": [ODD_NUMBERS]},
        "call": {"messages": [ASK, CALL], "tools": [WEATHER]},
        "call and result": {"messages": [ASK, CALL, tool("12 °C")], "tools": [WEATHER]},
        "call without content": {"messages": [ASK, CALL_NONE, tool("12")], "tools": [WEATHER]},
        "call, result, answer": {
            "messages": [ASK, CALL, tool("12 °C"), assistant("It is 12."), user("Thanks")],
            "tools": [WEATHER],
        },
        "call as text": {"messages": [ASK, CALL_TEXT, tool('{"t": 12}'), assistant("12")], "tools": [WEATHER]},
        "two calls": {
            "messages": [ASK, TWO_CALLS, tool("1", "get_weather", "aaaaaaaaa"), tool("2", "clock", "bbbbbbbbb"), user("so?")],
            "tools": [WEATHER, CLOCK],
        },
        "result is a dict": {"messages": [ASK, CALL, tool({"t": 12.0, "x": [AWKWARD]})], "tools": [WEATHER]},
        "result in parts": {"messages": [ASK, CALL, tool([{"type": "text", "text": "12"}])], "tools": [WEATHER]},
        "result without a call": {"messages": [ASK, tool("12")], "tools": [WEATHER]},
        "calls without tools": {"messages": [ASK, CALL, tool("12"), assistant("12")]},
        "empty call list": {"messages": [ASK, assistant("no", tool_calls=[]), user("why?")]},
        "reasoning and a call": {
            "messages": [
                ASK,
                {**CALL, "reasoning_content": "I must look."},
                tool("12"),
                assistant("12", reasoning_content="done"),
            ],
            "tools": [WEATHER],
        },
        "awkward call": {
            "messages": [ASK, assistant("", tool_calls=[call("get_weather", {"place": AWKWARD, "é": "ü", "l": [1, [2]]})])],
            "tools": [WEATHER],
        },
        "short call id": {"messages": [ASK, assistant("", tool_calls=[call("get_weather", {}, "1")]), tool("2", identifier="1")]},
        "documents": {
            "messages": [ASK],
            "documents": [{"title": "T", "text": "Long text", "doc_id": 1}, {"title": "", "text": AWKWARD}],
        },
        "tool choice": {
            "messages": [ASK],
            "tools": [WEATHER],
            "tool_choice": "required",
            "response_format": {"type": "json_object"},
        },
        "schema": {
            "messages": [ASK],
            "json_schema": {"type": "object"},
            "xml_tools": [WEATHER],
            "python_tools": "x",
            "custom_tools": [CLOCK],
        },
        "date": {"messages": [ASK], "date_string": "1 May 2024", "strftime": None, "today": "x"},
    }


SAME_FOR_ALL = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}


def variables(conversation: dict[str, Any], add_generation_prompt: bool) -> dict[str, Any]:
    return {**SAME_FOR_ALL, **conversation, "add_generation_prompt": add_generation_prompt}
