"""/v1/responses of moed-http as the real `openai` package sees it."""

import contextlib
import json
from typing import Any, ClassVar, Literal

from tests.http.client_library import main
from tests.http.conversation_rig import MODEL, SCHEMA, ConversationTest
from tests.http.front import front_of
from tests.http.openai_rig import REQUIREMENTS, SLOW, WAIT_SECONDS, client_of, running_requests
from tools.server_process import wait_until

with contextlib.suppress(ImportError):  # before main() has found a Python that has it
    import openai
    import pydantic
    from openai.types import responses

    class Animal(pydantic.BaseModel):
        animal: Literal["fox", "cat"]
        hops: int


QUESTION = "Tell me of a little fox."
TOOL = {"type": "function", "name": "look", "description": "Looks for an animal", "parameters": SCHEMA, "strict": True}
NAMED = {"type": "function", "name": "look"}
THINKING = {"extra_body": {"chat_template_kwargs": {"thinking": True}}}
IMAGE = {"type": "input_image", "image_url": "data:image/png;base64,aGVsbG8="}
CALL = {"type": "function_call", "call_id": "c", "name": "look", "arguments": "{}"}
RESULT = {"type": "function_call_output", "call_id": "c", "output": "none"}


def message(content: Any, role: str = "user") -> dict[str, Any]:
    return {"role": role, "content": content}


def rendered(*texts: str) -> str:
    """What the template makes of messages."""
    return "".join(f"<|user|>{text}" for text in texts) + "<|assistant|>"


def allowed_tools(**choice: Any) -> dict[str, Any]:
    return {"tools": [TOOL], "tool_choice": {"type": "allowed_tools", **choice}}


def without_identity(answer: Any) -> Any:
    """Of two answers that say the same."""
    dumped = answer.model_dump()
    for name in ("id", "created_at", "completed_at", "usage"):
        dumped.pop(name)
    for item in dumped["output"]:
        item.pop("id")
        item.pop("call_id", None)
    return dumped


class ResponsesTest(ConversationTest):
    client: ClassVar[Any]

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        cls.client = cls.enterClassContext(client_of(cls.front))

    @staticmethod
    def asked(given: Any = QUESTION, **parameters: Any) -> dict[str, Any]:
        return {"model": MODEL, "input": given, "max_output_tokens": 24, "temperature": 0, **parameters}

    def ask(self, given: Any = QUESTION, **parameters: Any) -> Any:
        return self.client.responses.create(**self.asked(given, **parameters))

    def generated(self, *texts: str) -> str:
        prompt = rendered(*texts)
        answer = self.daemon.json("generate", "--prompt", prompt, "--max-new-tokens", 24, "--temperature", 0)
        return str(answer["text"])

    def events(self, **parameters: Any) -> list[dict[str, Any]]:
        """Of a stream, each under the name that its event has."""
        with self.front.stream("/v1/responses", self.asked(stream=True, **parameters)) as answer:
            self.assertEqual((answer.status, answer.getheader("content-type")), (200, "text/event-stream; charset=utf-8"))
            *blocks, end = answer.read().decode().split("\n\n")
        self.assertEqual(end, "")
        lines = [block.split("\n") for block in blocks]
        events = [json.loads(data.removeprefix("data: ")) for _, data in lines]
        self.assertEqual([name for name, _ in lines], [f"event: {event['type']}" for event in events])
        self.assertEqual([event["sequence_number"] for event in events], list(range(len(events))))
        return events

    # Answers

    def test_an_answer_is_what_the_daemon_generates(self) -> None:
        status, body = self.front.post("/v1/responses", self.asked())
        self.assertEqual(status, 200, body)
        answer = responses.Response.model_validate(body)  # with all that the library's model needs
        self.assertTrue(answer.id.startswith("resp_"))
        self.assertEqual((answer.object, answer.model, answer.status), ("response", MODEL, "incomplete"))
        self.assertEqual((body["incomplete_details"], answer.error), ({"reason": "max_output_tokens"}, None))
        part = {"type": "output_text", "text": self.generated(QUESTION), "annotations": [], "logprobs": []}
        item = {"type": "message", "status": "incomplete", "role": "assistant", "content": [part]}
        self.assertEqual([{name: value for name, value in each.items() if name != "id"} for each in body["output"]], [item])
        self.assertEqual(answer.output_text, part["text"])
        usage = body["usage"]
        self.assertEqual((usage["output_tokens"], usage["total_tokens"]), (24, usage["input_tokens"] + 24))
        self.assertEqual(set(usage["input_tokens_details"]), {"cached_tokens", "cache_write_tokens"})
        self.assertEqual(set(usage["output_tokens_details"]), {"reasoning_tokens"})

    def test_tokens_of_an_input_can_be_counted(self) -> None:
        wanted = {"instructions": "Be brief.", "tools": [TOOL], "text": {"format": {"type": "json_object"}}}
        for given, more in (
            (QUESTION, {}),
            ([message(QUESTION), CALL, RESULT], {"instructions": "Be brief."}),
            (QUESTION, wanted),
        ):
            counted = self.client.responses.input_tokens.count(model=MODEL, input=given, **more)
            self.assertEqual(counted.object, "response.input_tokens")
            self.assertEqual(counted.input_tokens, self.ask(given, **more).usage.input_tokens)
        with self.assertRaises(openai.BadRequestError) as caught:
            self.client.responses.input_tokens.count(model=MODEL, input=[message("x"), {**CALL, "arguments": "5"}])
        self.assertEqual(caught.exception.param, "input[1].arguments")
        with self.assertRaises(openai.NotFoundError):
            self.client.responses.input_tokens.count(model="gpt-4o", input=QUESTION)

    def test_an_answer_that_ends_by_itself_is_complete(self) -> None:
        text = self.ask().output_text
        answer = self.ask(extra_body={"stop": text[10:14]})
        self.assertEqual((answer.status, answer.incomplete_details), ("completed", None))
        self.assertEqual(answer.output_text, text[: text.index(text[10:14])])
        self.assertEqual(answer.output[0].status, "completed")
        nothing = self.ask(extra_body={"stop": text[:1]})
        self.assertEqual((nothing.status, nothing.output_text, nothing.output[0].type), ("completed", "", "message"))

    def test_a_request_is_repeated(self) -> None:
        plain = self.ask()
        self.assertEqual((plain.tools, plain.tool_choice, plain.parallel_tool_calls, plain.metadata), ([], "auto", True, {}))
        self.assertEqual((plain.text.format.type, plain.truncation, plain.instructions), ("text", "disabled", None))
        wanted = {"instructions": "Be brief.", "tools": [TOOL], "tool_choice": "none", "parallel_tool_calls": False}
        further = {"metadata": {"a": "b"}, "user": "me", "max_output_tokens": 3, "top_p": 0.5}
        answer = self.ask(**wanted, **further).model_dump()
        answer["tools"] = [{name: tool[name] for name in TOOL} for tool in answer["tools"]]
        for name, value in {**wanted, **further}.items():
            self.assertEqual(answer[name], value, name)

    def test_inputs_of_every_form(self) -> None:
        text = self.generated("Tell me of\na fox.")
        parts = [{"type": "input_text", "text": text} for text in ("Tell me of", "a fox.")]
        for given in ([message("Tell me of\na fox.")], [{"type": "message", **message(parts)}]):
            self.assertEqual(self.ask(given).output_text, text)
        told = self.generated("Be brief.\nBe kind.", QUESTION)
        for instructions, first in (
            ("Be brief.", [message("Be kind.", "developer")]),
            (None, [message("Be brief.", "developer"), message("Be kind.", "system")]),
        ):
            self.assertEqual(self.ask([*first, message(QUESTION)], instructions=instructions).output_text, told)
        self.assertEqual(self.ask(instructions="Be kind.").output_text, self.generated("Be kind.", QUESTION))

    def test_an_answer_can_be_sent_back(self) -> None:
        first = self.ask()
        expected = self.generated(QUESTION, first.output_text, "And then?")
        for output in (first.output, [message(first.output_text, "assistant")]):
            self.assertEqual(self.ask([message(QUESTION), *output, message("And then?")]).output_text, expected)

    # Streams

    def test_a_stream_puts_the_same_together(self) -> None:
        for parameters in ({}, THINKING["extra_body"], {"tools": [TOOL], "tool_choice": NAMED, "max_output_tokens": 400}):
            with self.subTest(**parameters):
                events = self.events(**parameters)
                check: Any = pydantic.TypeAdapter(responses.ResponseStreamEvent)
                for event in events:
                    check.validate_python(event)
                final = responses.Response.model_validate(events[-1]["response"])
                whole = responses.Response.model_validate(self.front.post("/v1/responses", self.asked(**parameters))[1])
                self.assertEqual(without_identity(final), without_identity(whole))
                self.assertEqual(events[-1]["type"], f"response.{whole.status}")
                done = [event["item"] for event in events if event["type"] == "response.output_item.done"]
                self.assertEqual(done, events[-1]["response"]["output"])
                pieces = "".join(event["delta"] for event in events if event["type"].endswith(".delta"))
                self.assertEqual(pieces, done[0]["arguments"] if "arguments" in done[0] else done[0]["content"][0]["text"])

    def test_events_come_as_they_are_documented(self) -> None:
        kinds = [event["type"].removeprefix("response.") for event in self.events()]
        once = [kind for kind, before in zip(kinds, [None, *kinds], strict=False) if kind != before]
        item = ["output_item.added", "content_part.added", "output_text.delta"]
        ends = ["output_text.done", "content_part.done", "output_item.done"]
        self.assertEqual(once, ["created", "in_progress", *item, *ends, "incomplete"])

    def test_the_librarys_own_stream_puts_an_answer_together(self) -> None:
        text = self.ask().output_text
        with self.client.responses.stream(**self.asked(extra_body={"stop": text[10:14]})) as stream:
            told = "".join(event.delta for event in stream if event.type == "response.output_text.delta")
            final = stream.get_final_response()
        self.assertEqual((final.output_text, told), (text[: text.index(text[10:14])],) * 2)

    # Reasoning, tools, schemas

    def test_reasoning_is_an_item_of_its_own(self) -> None:
        whole = self.ask(**THINKING)
        self.assertEqual([item.type for item in whole.output], ["reasoning"])
        counted = [answer.usage.output_tokens_details.reasoning_tokens for answer in (whole, self.ask())]
        self.assertEqual(counted, [whole.usage.output_tokens, 0])
        thought = whole.output[0].content[0]
        self.assertEqual((thought.type, whole.output[0].summary, whole.output_text), ("reasoning_text", [], ""))
        kinds = [event["type"] for event in self.events(**THINKING["extra_body"])]
        self.assertIn("response.reasoning_text.delta", kinds)
        self.assertNotIn("response.output_text.delta", kinds)
        # It goes back before the text that it led to.
        said = message("A fox.", "assistant")
        expected = self.generated(QUESTION, f"{thought.text}A fox.", "And then?")
        summed = {"type": "reasoning", "id": "r", "summary": [{"type": "summary_text", "text": thought.text}]}
        for reasoning in (whole.output[0], summed):
            self.assertEqual(self.ask([message(QUESTION), reasoning, said, message("And then?")]).output_text, expected)

    def test_a_model_can_be_made_to_call_a_tool(self) -> None:
        one = {"max_output_tokens": 400, "tools": [TOOL], "parallel_tool_calls": False}
        for choice in (NAMED, "required", allowed_tools(mode="required", tools=[NAMED])["tool_choice"]):
            answer = self.ask(**one, tool_choice=choice)
            self.assertEqual((answer.status, [item.type for item in answer.output]), ("completed", ["function_call"]))
            call = answer.output[0]
            arguments = json.loads(call.arguments)
            self.assertEqual((call.name, call.status, sorted(arguments)), ("look", "completed", ["animal", "hops"]))
            self.assertIn(arguments["animal"], ("fox", "cat"))
        result = {"type": "function_call_output", "call_id": call.call_id, "output": "none\nat all"}
        prompt = [message(QUESTION), *answer.output, result]
        again = self.ask(prompt, tools=[TOOL], tool_choice="none")
        self.assertEqual([item.type for item in again.output], ["message"])
        parts = [{"type": "input_text", "text": text} for text in ("none", "", "at all")]
        same = self.ask([*prompt[:-1], {**result, "output": parts}], tools=[TOOL], tool_choice="none")
        self.assertEqual(same.output_text, again.output_text)

    def test_a_call_that_was_cut_off_is_incomplete(self) -> None:
        one = {"tools": [TOOL], "tool_choice": NAMED, "max_output_tokens": 400}

        def cut_off(tokens: int) -> Any:
            answer = self.ask(**{**one, "max_output_tokens": tokens})
            begun = answer.output[0].type == "function_call" and answer.output[0].arguments
            return answer if begun else None

        cut = next(filter(None, map(cut_off, range(1, 400))))
        self.assertEqual((cut.status, cut.output[0].status), ("incomplete", "incomplete"))
        with self.assertRaises(json.JSONDecodeError):
            json.loads(cut.output[0].arguments)
        again = self.ask([message(QUESTION), *cut.output, {**RESULT, "call_id": cut.output[0].call_id}], **one)
        self.assertEqual(again.status, "completed")

    def test_a_schema_is_kept(self) -> None:
        form = {"type": "json_schema", "name": "animal", "schema": SCHEMA, "strict": True}
        long: dict[str, Any] = {"max_output_tokens": 400, "extra_body": {"chat_template_kwargs": {"thinking": False}}}
        answer = self.ask(text={"format": form}, **long)
        self.assertEqual(answer.status, "completed")
        self.assertIn(json.loads(answer.output_text)["animal"], ("fox", "cat"))
        parsed = self.client.responses.parse(**self.asked(text_format=Animal, **long))
        self.assertIn(parsed.output_parsed.animal, ("fox", "cat"))
        self.assertTrue(self.ask(text={"format": {"type": "json_object"}}, **long).output_text.startswith("{"))

    def test_logprobs_stand_at_the_text(self) -> None:
        wanted = {"include": ["message.output_text.logprobs"], "top_logprobs": 2}
        part = self.ask(**wanted).output[0].content[0]
        self.assertEqual(b"".join(bytes(token.bytes) for token in part.logprobs).decode(), part.text)
        self.assertEqual({len(token.top_logprobs) for token in part.logprobs}, {2})
        deltas = [event for event in self.events(**wanted) if event["type"] == "response.output_text.delta"]
        streamed = [token for event in deltas for token in event["logprobs"]]
        self.assertEqual(streamed, [token.model_dump() for token in part.logprobs])

    # What is not as OpenAI has it

    def test_sessions_say_what_they_hold(self) -> None:
        body = {"session_id": "of responses", "expected_tokens": 0, "priority": "high", "fidelity": "exact"}
        answer = self.ask(extra_body=body)
        self.assertEqual(answer.session_tokens, answer.usage.input_tokens + 24)
        with self.assertRaises(openai.BadRequestError) as other:
            self.ask(extra_body={**body, "expected_tokens": 3})
        self.assertIn(f"holds {answer.session_tokens} tokens", str(other.exception))

    def test_what_changes_nothing_is_taken(self) -> None:
        text = self.ask().output_text
        same = self.ask(
            store=False, background=False, truncation="disabled", service_tier="auto", include=["reasoning.encrypted_content"],
            reasoning={"effort": "low", "summary": "auto"}, text={"format": {"type": "text"}, "verbosity": "medium"},
            prompt_cache_key="k", safety_identifier="s", user="me", metadata={"a": "b"}, tool_choice="auto", max_tool_calls=3,
            extra_body={"client_metadata": {"a": "b"}, "seed": 3, "what": None}, stream_options={"include_obfuscation": False},
        )  # fmt: skip
        self.assertEqual(same.output_text, text)

    def test_what_is_wrong_is_named(self) -> None:
        hidden = {"type": "reasoning", "id": "r", "summary": [], "encrypted_content": "x"}
        cases: list[tuple[dict[str, Any], str]] = [
            ({"store": True}, "store"),
            ({"previous_response_id": "resp_1"}, "previous_response_id"),
            ({"conversation": "conv_1"}, "conversation"),
            ({"background": True}, "background"),
            ({"prompt": {"id": "pmpt_1"}}, "prompt"),
            ({"truncation": "auto"}, "truncation"),
            ({"service_tier": "flex"}, "service_tier"),
            ({"include": ["file_search_call.results"]}, "include[0]"),
            ({"include": "reasoning.encrypted_content"}, "include"),
            ({"top_logprobs": 2}, "top_logprobs"),
            ({"top_logprobs": 21, "include": ["message.output_text.logprobs"]}, "top_logprobs"),
            ({"reasoning": {"summary": "detailed"}}, "reasoning.summary"),
            ({"reasoning": {"effort": 5}}, "reasoning.effort"),
            ({"text": {"verbosity": "low"}}, "text.verbosity"),
            ({"text": {"format": {"type": "xml"}}}, "text.format.type"),
            ({"text": {"format": {"type": "json_schema", "name": "n"}}}, "text.format.schema"),
            ({"text": {"format": {"type": "json_schema", "name": "n", "schema": {"not": {}}}}}, "text.format.schema"),
            ({"metadata": {"a": 5}}, "metadata.a"),
            ({"user": 5}, "user"),
            ({"instructions": ["x"]}, "instructions"),
            ({"max_output_tokens": 0}, "max_output_tokens"),
            ({"temperature": -1}, "temperature"),
            ({"parallel_tool_calls": 1}, "parallel_tool_calls"),
            ({"extra_body": {"what": 1}}, "what"),
            ({"extra_body": {"max_tokens": 1}}, "max_tokens"),
            ({"extra_body": {"messages": [message("x")]}}, "messages"),
            ({"extra_body": {"chat_template_kwargs": 5}}, "chat_template_kwargs"),
            ({"tools": [{"type": "web_search"}]}, "tools[0].type"),
            ({"tools": [TOOL, {"type": "custom", "name": "x"}]}, "tools[1].type"),
            ({"tools": [{**TOOL, "function": {}}]}, "tools[0].function"),
            ({"tools": [{**TOOL, "defer_loading": True}]}, "tools[0].defer_loading"),
            ({"tools": [{**TOOL, "parameters": {"type": "array"}}]}, "tools[0].parameters"),
            ({"tool_choice": "required"}, "tool_choice"),
            ({"tool_choice": "any"}, "tool_choice"),
            ({"tools": [TOOL], "tool_choice": {"type": "function", "name": "x"}}, "tool_choice.name"),
            ({"tools": [TOOL], "tool_choice": {"type": "file_search"}}, "tool_choice.type"),
            (allowed_tools(tools=[]), "tool_choice.mode"),
            (allowed_tools(mode="auto"), "tool_choice.tools"),
            (allowed_tools(mode="auto", tools=[{"type": "function"}]), "tool_choice.tools[0].name"),
            (allowed_tools(mode="auto", tools=[{"type": "function", "name": "x"}]), "tool_choice.tools[0].name"),
            ({"input": []}, "input"),
            ({"input": [], "instructions": "x"}, "input"),
            ({"input": [hidden]}, "input"),
            ({"input": 5}, "input"),
            ({"input": ["x"]}, "input[0]"),
            ({"input": [{"content": "x"}]}, "input[0].type"),
            ({"input": [{"type": "item_reference", "id": "msg_1"}]}, "input[0].type"),
            ({"input": [message("x", "king")]}, "input[0].role"),
            ({"input": [message("x", "tool")]}, "input[0].role"),
            ({"input": [{"role": "user"}]}, "input[0].content"),
            ({"input": [message("x"), message([IMAGE])]}, "input[1].content[0].type"),
            ({"input": [message([{"type": "input_text"}])]}, "input[0].content[0].text"),
            ({"input": [{**message("x"), "what": 1}]}, "input[0].what"),
            ({"input": [{**CALL, "arguments": None}]}, "input[0].arguments"),
            ({"input": [message("x"), {**CALL, "call_id": "c" * 129}]}, "input.call_id"),
            ({"input": [message("x"), {**CALL, "name": "c" * 129}]}, "input.name"),
            ({"input": [message("x"), {**CALL, "name": ""}]}, "input[1].name"),
            ({"tools": [{**TOOL, "name": "c" * 129}]}, "tools.name"),
            ({"input": [{**RESULT, "output": [IMAGE]}]}, "input[0].output[0].type"),
            ({"input": [{"type": "reasoning", "summary": "x"}]}, "input[0].summary"),
            # Of a message that several items make, the item at fault.
            ({"instructions": "x", "input": [hidden, message("x"), message("y", "assistant"), CALL, {**CALL, "arguments": "5"}]},
             "input[4].arguments"),
            ({"input": [message("x"), CALL, RESULT, {**CALL, "arguments": "5"}]}, "input[3].arguments"),
        ]  # fmt: skip
        for parameters, name in cases:
            with self.subTest(name, **parameters), self.assertRaises(openai.BadRequestError) as caught:
                self.ask(**{"given": parameters.pop("input", QUESTION), **parameters})
            self.assertEqual(caught.exception.param, name, caught.exception.message)
            self.assertTrue(caught.exception.body["message"].startswith(f"{name}: "), caught.exception.message)
        with self.assertRaisesRegex(openai.BadRequestError, "nothing is kept.*send the items themselves.*store: false"):
            self.ask([{"type": "item_reference", "id": "msg_1"}])
        with self.assertRaises(openai.NotFoundError):
            self.client.responses.create(**{**self.asked(), "model": "gpt-4o"})
        with self.assertRaises(openai.NotFoundError):
            self.client.responses.retrieve("resp_1")

    def test_a_prompt_beyond_the_context_is_told_in_openais_words(self) -> None:
        context = self.client.models.retrieve(MODEL).max_model_len
        for length in (context, 100 * context):  # more bytes than the context holds, too
            with self.assertRaises(openai.BadRequestError) as caught:
                self.ask(" fox" * length)
            self.assertEqual((caught.exception.code, caught.exception.param), ("context_length_exceeded", "input"))
            self.assertIn(f"This model's maximum context length is {context} tokens", caught.exception.message)
        # The daemon gives back the room of a long text after it has answered.
        wait_until(lambda: self.front.post("/v1/responses", self.asked())[0] == 200, "room for the next text", WAIT_SECONDS)

    def test_an_answer_that_the_operator_ends_is_not_asked_for_again(self) -> None:
        with self.running("--store", self.store, *SLOW) as daemon, front_of(daemon) as front, client_of(front) as client:
            wanted = self.asked(max_output_tokens=1000, stream=True, extra_body={"ignore_eos": True})
            with client.responses.create(**wanted) as stream:
                daemon.moectl("abort", next(stream).response.id)
                *_, last = stream
            self.assertEqual((last.type, last.response.error.code), ("response.failed", "invalid_prompt"))
            self.assertIn("aborted", last.response.error.message)

    def test_a_client_that_goes_away_ends_its_request(self) -> None:
        with self.running("--store", self.store, *SLOW) as daemon, front_of(daemon) as front, client_of(front) as client:
            wanted = self.asked(max_output_tokens=1000, stream=True, extra_body={"ignore_eos": True})
            with client.responses.create(**wanted) as stream:
                next(event for event in stream if event.type == "response.output_text.delta")
            wait_until(lambda: running_requests(daemon) == 0, "the stream to be cancelled", WAIT_SECONDS)
            self.assertLess(int(daemon.json("stats")["stats"]["generated_tokens"]), 1000)


if __name__ == "__main__":
    main("tests.http.responses_test", "openai", REQUIREMENTS)
