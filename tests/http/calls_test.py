"""Reasoning and calls of tools on their way from the daemon to OpenAI's form: a scripted daemon says what no demo model can."""

import contextlib
import http.client
import json
import sys
from collections.abc import Iterator
from typing import Any, ClassVar

import grpc

from tests.http.front import CALL_SECONDS
from tests.http.scripted_daemon import ScriptedDaemon, ScriptedDaemonTest
from tests.real_programs import main

pb: Any = None  # made from proto/ when the tests begin
ARGUMENTS = '{"place": "Oslo"}'
REQUEST = {"model": "scripted", "messages": [{"role": "user", "content": "x"}]}
# Both are held in the same words.
HELD_REQUESTS = (("/v1/chat/completions", REQUEST), ("/v1/completions", {"model": "scripted", "prompt": "x"}))
RESPONSES_REQUEST = {"model": "scripted", "input": "x"}
# What every answer is made of, as items of /v1/responses.
REASONING = {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "Hm. "}], "status": "completed"}
SAID = {
    "type": "message",
    "status": "completed",
    "role": "assistant",
    "content": [{"type": "output_text", "text": "Let me see.", "annotations": [], "logprobs": []}],
}
CALLED = {"type": "function_call", "status": "completed", "call_id": "call-1", "name": "weather", "arguments": ARGUMENTS}


class Caller:
    """Answers every conversation alike."""

    def __init__(self) -> None:
        self.request: Any = None
        self.metadata: dict[str, str] = {}
        self.breaks_off = False  # streams, after their first message

    def daemon(self) -> ScriptedDaemon:
        unary = {"/moe.v1.Inference/Chat": self.whole, "/moe.v1.Inference/Generate": self.generate}
        return ScriptedDaemon(unary, {"/moe.v1.Inference/ChatStream": self.stream})

    def generate(self, body: bytes, _: Any) -> bytes:
        self.request = pb.GenerateRequest.FromString(body)
        answer: bytes = pb.GenerateResponse(text="x", finish=pb.Finish(reason=pb.FINISH_REASON_STOP)).SerializeToString()
        return answer

    def parts(self, body: bytes, context: Any) -> list[Any]:
        self.request = pb.ChatRequest.FromString(body)
        self.metadata = dict(context.invocation_metadata())
        finish = pb.Finish(
            reason=pb.FINISH_REASON_TOOL_CALLS,
            usage=pb.Usage(prompt_tokens=3, completion_tokens=5, cached_tokens=2, reasoning_tokens=1),
        )
        first = pb.ToolCallDelta(index=0, id="call-1", name="weather", arguments=ARGUMENTS[:7])
        return [
            pb.ChatResponse(reasoning="Hm. "),
            pb.ChatResponse(text="Let me see."),
            pb.ChatResponse(tool_calls=[first]),
            pb.ChatResponse(tool_calls=[pb.ToolCallDelta(index=0, arguments=ARGUMENTS[7:])]),
            pb.ChatResponse(finish=finish),
        ]

    def stream(self, body: bytes, context: Any) -> Iterator[bytes]:
        for part in self.parts(body, context):
            yield part.SerializeToString()
            if self.breaks_off:
                context.abort(grpc.StatusCode.UNAVAILABLE, "the daemon is ending")

    def whole(self, body: bytes, context: Any) -> bytes:
        answer = pb.ChatResponse()
        for part in self.parts(body, context):
            answer.MergeFrom(part)
        del answer.tool_calls[1]
        answer.tool_calls[0].arguments = ARGUMENTS
        answer.text, answer.reasoning = "", "Hm. "
        serialized: bytes = answer.SerializeToString()
        return serialized


class CallsTest(ScriptedDaemonTest):
    daemon: ClassVar[Caller]

    @classmethod
    def script(cls) -> ScriptedDaemon:
        cls.daemon = Caller()
        return cls.daemon.daemon()

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        global pb
        sys.path.insert(0, str(cls.generate_stubs()))
        from moe.v1 import inference_pb2 as pb

    def test_a_whole_answer(self) -> None:
        status, answer = self.front.post("/v1/chat/completions", REQUEST)
        self.assertEqual(status, 200, answer)
        choice = answer["choices"][0]
        call = {"id": "call-1", "type": "function", "function": {"name": "weather", "arguments": ARGUMENTS}}
        self.assertEqual(
            choice["message"],
            {"role": "assistant", "content": None, "refusal": None, "reasoning_content": "Hm. ", "tool_calls": [call]},
        )
        self.assertEqual(choice["finish_reason"], "tool_calls")
        self.assertEqual(answer["usage"]["prompt_tokens_details"], {"cached_tokens": 2})
        self.assertEqual(answer["usage"]["completion_tokens_details"], {"reasoning_tokens": 1})

    def test_a_stream(self) -> None:
        connection = http.client.HTTPConnection(self.front.address, timeout=CALL_SECONDS)
        with contextlib.closing(connection):
            body = json.dumps({**REQUEST, "stream": True})
            connection.request("POST", "/v1/chat/completions", body, {"content-type": "application/json"})
            with connection.getresponse() as answer:
                self.assertEqual(answer.getheader("content-type"), "text/event-stream; charset=utf-8")
                events = answer.read().decode().split("\n\n")
        self.assertEqual(events[-2:], ["data: [DONE]", ""])
        choices = [json.loads(event.removeprefix("data: "))["choices"][0] for event in events[:-2]]
        self.assertEqual(
            [choice["delta"] for choice in choices],
            [
                {"role": "assistant", "content": ""},
                {"reasoning_content": "Hm. "},
                {"content": "Let me see."},
                {
                    "tool_calls": [
                        {
                            "index": 0,
                            "id": "call-1",
                            "type": "function",
                            "function": {"name": "weather", "arguments": ARGUMENTS[:7]},
                        }
                    ]
                },
                {"tool_calls": [{"index": 0, "function": {"arguments": ARGUMENTS[7:]}}]},
                {},
            ],
        )
        self.assertEqual([choice["finish_reason"] for choice in choices], [None] * 5 + ["tool_calls"])

    def items(self, response: Any) -> list[dict[str, Any]]:
        """Of an answer of /v1/responses, without their ids, which all differ."""
        output = response["output"]
        self.assertEqual(len({item["id"] for item in output}), len(output))
        return [{name: value for name, value in item.items() if name != "id"} for item in output]

    def test_a_whole_response(self) -> None:
        status, answer = self.front.post("/v1/responses", RESPONSES_REQUEST)
        self.assertEqual((status, answer["status"]), (200, "completed"), answer)
        self.assertEqual(self.items(answer), [REASONING, CALLED])
        usage = answer["usage"]
        self.assertEqual((usage["input_tokens"], usage["output_tokens"], usage["total_tokens"]), (3, 5, 8))
        self.assertEqual(usage["input_tokens_details"]["cached_tokens"], 2)
        self.assertEqual(usage["output_tokens_details"], {"reasoning_tokens": 1})

    def response_events(self) -> list[dict[str, Any]]:
        with self.front.stream("/v1/responses", {**RESPONSES_REQUEST, "stream": True}) as answer:
            *blocks, end = answer.read().decode().split("\n\n")
        self.assertEqual(end, "")
        events = [json.loads(block.split("\ndata: ")[1]) for block in blocks]
        self.assertEqual([event["sequence_number"] for event in events], list(range(len(events))))
        return events

    def test_a_stream_of_a_response(self) -> None:
        events = self.response_events()

        def item(*kinds: str) -> list[str]:
            return ["output_item.added", *kinds, "output_item.done"]

        def part(text: str) -> list[str]:
            return ["content_part.added", f"{text}.delta", f"{text}.done", "content_part.done"]

        arguments = "function_call_arguments"
        kinds = [
            *("created", "in_progress"),
            *item(*part("reasoning_text")),
            *item(*part("output_text")),
            *item(f"{arguments}.delta", f"{arguments}.delta", f"{arguments}.done"),
            "completed",
        ]
        self.assertEqual([event["type"] for event in events], [f"response.{kind}" for kind in kinds])
        self.assertEqual(self.items(events[-1]["response"]), [REASONING, SAID, CALLED])
        begun = [event["item"] for event in events if event["type"] == "response.output_item.added"]
        shown = [(each["status"], each.get("content", []), each.get("arguments", "")) for each in begun]
        self.assertEqual(shown, [("in_progress", [], "")] * 3)
        deltas = [(event["output_index"], event["delta"]) for event in events if event["type"].endswith(".delta")]
        self.assertEqual(deltas, [(0, "Hm. "), (1, "Let me see."), (2, ARGUMENTS[:7]), (2, ARGUMENTS[7:])])

    def test_a_response_that_breaks_off_has_failed(self) -> None:
        self.daemon.breaks_off = True
        self.addCleanup(setattr, self.daemon, "breaks_off", False)
        *_, error, failed = self.response_events()
        self.assertEqual((error["type"], error["code"], error["message"]), ("error", "unavailable", "the daemon is ending"))
        response = failed["response"]
        self.assertEqual((failed["type"], response["status"], response["usage"]), ("response.failed", "failed", None))
        self.assertEqual(response["error"], {"code": "server_error", "message": "the daemon is ending"})
        self.assertEqual(self.items(response), [{**REASONING, "status": "incomplete"}])

    def test_items_reach_the_daemon(self) -> None:
        call: dict[str, Any] = {"type": "function_call", "id": "fc", "name": "weather", "arguments": ARGUMENTS}
        call |= {"status": "completed", "parsed_arguments": {"place": "Oslo"}}  # the latter as openai-python adds it
        thought = {"type": "reasoning", "id": "rs", "summary": [], "content": [{"type": "reasoning_text", "text": "r"}]}
        so = {"type": "output_text", "text": "So.", "annotations": [], "logprobs": [], "parsed": {"so": 1}}
        parts = [so, {"type": "refusal", "refusal": "No."}]
        said = {"type": "message", "id": "m", "role": "assistant", "status": "completed", "phase": "commentary", "content": parts}
        given = [
            {"role": "developer", "content": "Be brief."},
            {"role": "user", "content": [{"type": "input_text", "text": "Weather?"}]},
            *(thought, said, {**call, "call_id": "c"}, {**call, "call_id": "d"}),
            {"type": "function_call_output", "call_id": "d", "output": "Rain"},
            {"type": "function_call_output", "call_id": "c", "output": [{"type": "input_text", "text": "Sun"}]},
            *({**call, "call_id": "e"}, {**thought, "encrypted_content": "x"}),
        ]
        schema = {"type": "object", "properties": {"z": {"type": "string"}, "a": {"type": "integer"}}}
        tool = {"type": "function", "name": "weather", "description": "d", "parameters": schema, "strict": True}
        choice = {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "weather"}]}
        wanted = {
            "instructions": "Be kind.",
            "tools": [{"type": "function", "name": "other"}, tool],
            "tool_choice": choice,
            "parallel_tool_calls": False,
            "reasoning": {"effort": "low"},
            "text": {"format": {"type": "json_schema", "name": "n", "schema": schema, "strict": True}},
        }
        status, answer = self.front.post("/v1/responses", {**RESPONSES_REQUEST, "input": given, **wanted})
        self.assertEqual(status, 200, answer)
        request = self.daemon.request
        roles = [message.role for message in request.messages]
        self.assertEqual(roles, ["system", "user", "assistant", "tool", "tool", "assistant", "assistant"])
        texts = [[part.text for part in message.content] for message in request.messages]
        self.assertEqual(texts, [["Be kind.", "Be brief."], ["Weather?"], ["So.", "No."], ["Rain"], ["Sun"], [], []])
        calls = [[each.id for each in message.tool_calls] for message in request.messages]
        self.assertEqual(calls, [[], [], ["c", "d"], [], [], ["e"], []])
        self.assertEqual(request.messages[2].tool_calls[0], pb.ToolCall(id="c", name="weather", arguments=ARGUMENTS))
        self.assertEqual([message.reasoning for message in request.messages], ["", "", "r", "", "", "", "r"])
        results = [(message.tool_call_id, message.name) for message in request.messages if message.role == "tool"]
        self.assertEqual(results, [("d", "weather"), ("c", "weather")])
        parameters = json.dumps(schema, separators=(",", ":"))
        self.assertEqual(list(request.tools), [pb.Tool(name="weather", description="d", parameters=parameters, strict=True)])
        self.assertEqual(request.tool_choice, pb.ToolChoice(kind=pb.ToolChoice.REQUIRED, at_most_one=True))
        self.assertEqual(json.loads(request.template_variables), {"reasoning_effort": "low"})
        self.assertEqual(request.format.json_schema, parameters)

    def test_priorities_reach_the_daemon(self) -> None:
        high, normal, low = pb.PRIORITY_HIGH, pb.PRIORITY_NORMAL, pb.PRIORITY_LOW
        names = [("high", high), ("normal", normal), ("low", low), ("urgent", None), (1, None)]
        levels = [
            (1, high),
            (2, normal),
            (3, low),
            (0, pb.PRIORITY_UNSPECIFIED),
            (4, None),
            (-1, None),
            (1.5, None),
            ("urgent", None),
        ]
        paths = (
            ("/v1/chat/completions", REQUEST, names),
            ("/v1/responses", RESPONSES_REQUEST, names),
            ("/v1/completions", {"model": "scripted", "prompt": "x"}, names),
            ("/v1/messages", {**REQUEST, "max_tokens": 9}, names),
            ("/v2/models/scripted/generate", {"text_input": "x"}, names[:3] + levels),
        )
        for path, request, values in paths:
            for value, wanted in values:
                with self.subTest(path, value=value):
                    status, answer = self.front.post(path, {**request, "priority": value})
                    self.assertEqual(status, 400 if wanted is None else 200, answer)
                    if wanted is None:
                        self.assertIn("priority", json.dumps(answer))
                    else:
                        self.assertEqual(self.daemon.request.priority, wanted)

    def test_what_proxies_choose_by_reaches_the_daemon(self) -> None:
        messages = {**REQUEST, "max_tokens": 9}
        for path, request, session in (
            ("/v1/chat/completions", messages, {"session_id": "s"}),
            ("/v1/responses", RESPONSES_REQUEST, {"session_id": "s"}),
            ("/v1/messages", messages, {}),
        ):
            for stream in (False, True):
                body = json.dumps({**request, **session, "stream": stream}).encode()
                for topic in ("recipes", "a\tb", "x" * 2000):
                    headers = {"content-type": "application/json", "moe-topic": topic}
                    status, answer = self.front.request("POST", path, body, headers)
                    self.assertEqual(status, 200, answer)
                    self.assertEqual(self.daemon.metadata.get("moe-session-id"), session.get("session_id"), path)
                    held = topic if topic == "recipes" else None
                    self.assertEqual(self.daemon.metadata.get("moe-topic"), held, path)

    def test_tools_and_formats_reach_the_daemon(self) -> None:
        schema = {"type": "object", "properties": {"z": {"type": "string"}, "a": {"type": "integer"}}}
        tool = {"type": "function", "function": {"name": "weather", "description": "d", "parameters": schema, "strict": True}}
        call = {"id": "c", "type": "function", "function": {"name": "weather", "arguments": ARGUMENTS}}
        messages = [
            {"role": "developer", "content": "Be brief."},
            {"role": "user", "content": [{"type": "text", "text": "Weather?"}], "name": "Ann"},
            {"role": "assistant", "content": None, "reasoning_content": "r", "tool_calls": [call]},
            {"role": "tool", "content": "Rain", "tool_call_id": "c"},
        ]
        held = {"type": "json_schema", "json_schema": {"name": "n", "schema": schema, "strict": True}}
        wanted = {
            "tools": [tool],
            "tool_choice": "none",
            "parallel_tool_calls": False,
            "reasoning_effort": "low",
            "response_format": held,
        }
        status, answer = self.front.post("/v1/chat/completions", {**REQUEST, "messages": messages, **wanted})
        self.assertEqual(status, 200, answer)
        request = self.daemon.request
        self.assertEqual([message.role for message in request.messages], ["developer", "user", "assistant", "tool"])
        self.assertEqual((request.messages[1].content[0].text, request.messages[1].name), ("Weather?", "Ann"))
        self.assertEqual(request.messages[2].tool_calls[0], pb.ToolCall(id="c", name="weather", arguments=ARGUMENTS))
        self.assertEqual((request.messages[2].reasoning, len(request.messages[2].content)), ("r", 0))
        self.assertEqual(request.messages[3].tool_call_id, "c")
        parameters = json.dumps(schema, separators=(",", ":"))
        self.assertEqual(
            request.tools[0],
            pb.Tool(name="weather", description="d", parameters=parameters, strict=True),
            "members keep their order",
        )
        self.assertEqual(request.tool_choice, pb.ToolChoice(kind=pb.ToolChoice.NONE, at_most_one=True))
        self.assertEqual(json.loads(request.template_variables), {"reasoning_effort": "low"})
        self.assertEqual(request.format.json_schema, parameters)

    def test_what_an_answer_is_held_to_reaches_the_daemon(self) -> None:
        schema = {"type": "object", "properties": {"z": {"type": "string"}}}
        text = json.dumps(schema, separators=(",", ":"))
        choice = ["a|b.c", "(ß)\\ {1}", "x_y-z"]
        escaped = r"a\|b\.c|\(ß\)\\ \{1\}|x\_y\-z"
        held = (
            ({"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}}, {"json_schema": text}),
            ({"response_format": {"type": "json_object"}}, {"json_object": True}),
            ({"response_format": {"type": "json_object", "schema": schema}}, {"json_schema": text}),
            ({"response_format": {"type": "json_schema", "schema": schema}}, {"json_schema": text}),
            ({"response_format": {"type": "text"}, "guided_regex": "[0-9]+"}, {"regex": "[0-9]+"}),
            ({"structured_outputs": {"regex": "[0-9]+", "json": None}}, {"regex": "[0-9]+"}),
            ({"structured_outputs": {"choice": choice}}, {"regex": escaped}),
            ({"structured_outputs": {"json": schema}}, {"json_schema": text}),
            ({"structured_outputs": {"json_object": True}}, {"json_object": True}),
            ({"guided_choice": choice}, {"regex": escaped}),
            ({"guided_json": schema}, {"json_schema": text}),
            ({"guided_json": text}, {"json_schema": text}),
        )
        for path, request in HELD_REQUESTS:
            for parameters, wanted in held:
                with self.subTest(path, **parameters):
                    status, answer = self.front.post(path, {**request, **parameters})
                    self.assertEqual(status, 200, answer)
                    self.assertEqual(self.daemon.request.format, pb.OutputFormat(**wanted))

    def test_the_length_has_two_names_that_say_the_same(self) -> None:
        for path, request in HELD_REQUESTS:
            nothing_said = 16 if path == "/v1/completions" else 0
            lengths: tuple[tuple[dict[str, int], int], ...] = (
                ({}, nothing_said),
                ({"max_tokens": 5}, 5),
                ({"max_completion_tokens": 5}, 5),
                ({"max_completion_tokens": 5, "max_tokens": 5}, 5),
            )
            for parameters, wanted in lengths:
                with self.subTest(path, **parameters):
                    status, answer = self.front.post(path, {**request, **parameters})
                    self.assertEqual(status, 200, answer)
                    self.assertEqual(self.daemon.request.stopping.max_new_tokens, wanted)

    def test_an_answer_is_held_to_one_thing(self) -> None:
        json_object = {"type": "json_object"}
        twice = {**json_object, "json_schema": {"schema": {}}, "schema": {}}
        refused: tuple[tuple[dict[str, Any], str, str], ...] = (
            ({"guided_regex": "a", "guided_choice": ["b"]}, "guided_choice", "one thing, which guided_regex says already"),
            ({"response_format": json_object, "guided_json": {}}, "guided_json", "which response_format says already"),
            ({"structured_outputs": {"regex": "a", "choice": ["b"]}}, "structured_outputs.choice", "structured_outputs.regex"),
            ({"response_format": twice}, "response_format.schema", "there is a schema already"),
            ({"response_format": {**json_object, "schema": 5}}, "response_format.schema", "no JSON schema"),
            ({"structured_outputs": {}}, "structured_outputs", "wanted is one of regex, choice, json, json_object"),
            ({"structured_outputs": {"grammar": "a"}}, "structured_outputs.grammar", "unknown parameter"),
            ({"structured_outputs": {"json_object": False}}, "structured_outputs.json_object", "false would say nothing"),
            ({"structured_outputs": "a"}, "structured_outputs", "no object"),
            ({"guided_choice": []}, "guided_choice", "one string at least"),
            ({"guided_choice": ["a", ""]}, "guided_choice[1]", "empty"),
            ({"guided_choice": ["a", 1]}, "guided_choice[1]", "1 is no string"),
            ({"guided_choice": "a"}, "guided_choice", "no array"),
            ({"guided_json": [1]}, "guided_json", "no JSON schema"),
            ({"guided_regex": 1}, "guided_regex", "1 is no string"),
        )
        for path, request in HELD_REQUESTS:
            for parameters, name, words in refused:
                with self.subTest(path, **parameters):
                    status, answer = self.front.post(path, {**request, **parameters})
                    self.assertEqual((status, answer["error"]["param"]), (400, name), answer)
                    self.assertIn(words, answer["error"]["message"])


if __name__ == "__main__":
    main()
