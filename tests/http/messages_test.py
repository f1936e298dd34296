"""/v1/messages of moed-http as the real `anthropic` package sees it."""

import contextlib
import json
import pathlib
from collections.abc import Iterator
from typing import Any, ClassVar

from tests.http.client_library import main
from tests.http.conversation_rig import MODEL, SCHEMA, ConversationTest
from tests.http.front import Front, front_of
from tests.tokens import write_tokens

with contextlib.suppress(ImportError):  # before main() has found a Python that has it
    import anthropic

REQUIREMENTS = ("anthropic==2.12.0",)
MESSAGES = [{"role": "user", "content": "Tell me of a little fox."}]
TOOL = {"name": "look", "description": "Looks for an animal", "input_schema": SCHEMA}


def edits(*of_context: dict[str, Any]) -> dict[str, Any]:
    return {"extra_body": {"context_management": {"edits": list(of_context)}}}


@contextlib.contextmanager
def client_of(front: Front, **key: str) -> Iterator[Any]:
    with anthropic.Anthropic(base_url=f"http://{front.address}", max_retries=0, **(key or {"api_key": "none"})) as client:
        yield client


class MessagesTest(ConversationTest):
    client: ClassVar[Any]

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        cls.client = cls.enterClassContext(client_of(cls.front))

    @staticmethod
    def asked(messages: Any = None, **parameters: Any) -> dict[str, Any]:
        further = {"temperature": 0, **parameters.pop("extra_body", {})}  # this version of the package has no name for it
        return {"model": MODEL, "max_tokens": 24, "messages": messages or MESSAGES, **parameters, "extra_body": further}

    def ask(self, messages: Any = None, **parameters: Any) -> Any:
        return self.client.messages.create(**self.asked(messages, **parameters))

    def test_an_answer_and_its_usage(self) -> None:
        prompt = f"<|user|>{MESSAGES[0]['content']}<|assistant|>"
        expected = self.daemon.json("generate", "--prompt", prompt, "--max-new-tokens", 24, "--temperature", 0)
        answer = self.ask()
        self.assertEqual(
            (answer.type, answer.role, answer.model, answer.stop_reason), ("message", "assistant", MODEL, "max_tokens")
        )
        self.assertEqual([(block.type, block.text) for block in answer.content], [("text", expected["text"])])
        counted = self.client.messages.count_tokens(model=MODEL, messages=MESSAGES).input_tokens
        self.assertEqual(counted, expected["usage"]["prompt_tokens"])
        usage = answer.usage
        self.assertEqual((usage.input_tokens + usage.cache_read_input_tokens, usage.output_tokens), (counted, 24))

    def test_tokens_are_counted_whoever_speaks_last(self) -> None:
        def count(messages: list[Any]) -> int:
            counted: int = self.client.messages.count_tokens(model=MODEL, messages=messages).input_tokens
            return counted

        self.assertGreater(count([*MESSAGES, {"role": "assistant", "content": "A fox."}]), count(MESSAGES))

    def test_a_stream_puts_the_same_together(self) -> None:
        with self.client.messages.stream(**self.asked()) as stream:
            events = [event.type for event in stream]
            final = stream.get_final_message()
        whole = self.ask()
        self.assertEqual([block.model_dump() for block in final.content], [block.model_dump() for block in whole.content])
        self.assertEqual((final.stop_reason, final.usage.output_tokens), (whole.stop_reason, 24))
        self.assertEqual((events[0], events[-1]), ("message_start", "message_stop"))

    def test_events_come_as_they_are_documented(self) -> None:
        with self.client.messages.create(**self.asked(stream=True)) as stream:
            kinds = [event.type for event in stream]
        once = [kind for kind, before in zip(kinds, [None, *kinds], strict=False) if kind != before]
        middle = ["content_block_start", "content_block_delta", "content_block_stop"]
        self.assertEqual([kind for kind in once if kind != "ping"], ["message_start", *middle, "message_delta", "message_stop"])

    def test_a_stop_sequence_is_named(self) -> None:
        text = self.ask().content[0].text
        answer = self.ask(stop_sequences=[text[10:14]])
        self.assertEqual((answer.stop_reason, answer.stop_sequence), ("stop_sequence", text[10:14]))
        self.assertEqual(answer.content[0].text, text[: text.index(text[10:14])])

    def test_a_model_can_be_made_to_use_a_tool(self) -> None:
        one = {"max_tokens": 400, "tools": [TOOL]}
        for choice in ({"type": "any", "disable_parallel_tool_use": True}, {"type": "tool", "name": "look"}):
            answer = self.ask(**one, tool_choice=choice)
            self.assertEqual((answer.stop_reason, len(answer.content)), ("tool_use", 1), answer)
            block = answer.content[0]
            self.assertEqual((block.type, block.name), ("tool_use", "look"))
            self.assertIn(block.input["animal"], ("fox", "cat"))
            self.assertIn(block.input["hops"], range(1, 10))
        with self.client.messages.stream(**self.asked(**one, tool_choice=choice)) as stream:
            final = stream.get_final_message()
        self.assertEqual((final.content[0].input, final.stop_reason), (block.input, "tool_use"))
        # The answer goes back, and the result with it.
        result = {"type": "tool_result", "tool_use_id": block.id, "content": [{"type": "text", "text": "none"}]}
        turns = [*MESSAGES, {"role": "assistant", "content": answer.content}, {"role": "user", "content": [result]}]
        self.assertEqual(self.ask(turns, tools=[TOOL], tool_choice={"type": "none"}).stop_reason, "max_tokens")

    def test_a_schema_is_kept(self) -> None:
        held = {"type": "json_schema", "schema": SCHEMA}
        beta = {"extra_body": {"output_format": held}}  # its name before
        for parameters in ({"output_config": {"format": held}}, beta):
            answer = self.ask(max_tokens=400, thinking={"type": "disabled"}, **parameters)
            self.assertEqual(answer.stop_reason, "end_turn")
            self.assertIn(json.loads(answer.content[0].text)["animal"], ("fox", "cat"))

    def test_thinking_is_a_block_of_its_own(self) -> None:
        thinking = {"type": "enabled", "budget_tokens": 1024}
        whole = self.ask(thinking=thinking)
        self.assertEqual([block.type for block in whole.content], ["thinking"])
        with self.client.messages.stream(**self.asked(thinking=thinking)) as stream:
            final = stream.get_final_message()
        self.assertEqual(final.content[0].thinking, whole.content[0].thinking)
        self.assertNotEqual(self.ask(thinking={"type": "disabled"}).content[0].type, "thinking")

    def test_system_and_blocks_reach_the_template(self) -> None:
        def answer(content: Any) -> str:
            call = {"type": "tool_use", "id": "1", "name": "look", "input": {}}
            turns = [*MESSAGES, {"role": "assistant", "content": [call]}, {"role": "user", "content": content}]
            text: str = self.ask(turns).content[0].text
            return text

        def result(content: Any) -> list[Any]:
            return [{"type": "tool_result", "tool_use_id": "1", "content": content}]

        joined = "Tell me of\na little fox."
        blocks = [{"type": "text", "text": text} for text in ("Tell me of", "", "a little fox.")]
        self.assertEqual(answer(blocks), answer(joined))
        self.assertEqual(answer(result(blocks)), answer(result(joined)))
        plain = self.client.messages.count_tokens(model=MODEL, messages=MESSAGES).input_tokens
        for system in ("Be brief.", [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}]):
            counted = self.client.messages.count_tokens(model=MODEL, messages=MESSAGES, system=system).input_tokens
            self.assertGreater(counted, plain)

    def test_the_system_may_speak_among_the_messages(self) -> None:
        def turns(content: Any) -> list[Any]:
            return [*MESSAGES, {"role": "system", "content": content}]

        blocks = [{"type": "text", "text": text, "cache_control": {"type": "ephemeral"}} for text in ("Be brief.", "Be kind.")]
        answer = self.ask(turns("Be brief.\nBe kind."), system="You tell tales.")
        self.assertEqual(self.ask(turns(blocks), system="You tell tales.").content, answer.content)
        counts = [
            self.client.messages.count_tokens(model=MODEL, messages=messages).input_tokens
            for messages in (MESSAGES, turns("Be brief."), turns(blocks))
        ]
        self.assertEqual(counts, sorted(set(counts)))

    def test_what_changes_nothing_is_taken(self) -> None:
        redacted = {"type": "redacted_thinking", "data": "x"}

        def turns(*blocks: Any) -> list[Any]:
            answer = {"role": "assistant", "content": [*blocks, {"type": "text", "text": "A fox."}]}
            return [*MESSAGES, answer, {"role": "user", "content": "And then?"}]

        keep_all = [{"type": "clear_thinking_20251015", "keep": keep} for keep in ("all", {"type": "all"})]
        same = {
            "speed": "standard",
            "inference_geo": "eu",
            "diagnostics": {"previous_message_id": None},
            **edits(*keep_all)["extra_body"],
        }
        further = {"eager_input_streaming": True, "input_examples": [{}], "allowed_callers": ["direct"], "defer_loading": False}
        for plain, tool in ((self.ask(turns()), None), (self.ask(turns(), tools=[TOOL]), {**TOOL, **further})):
            answer = self.ask(turns(redacted), extra_body=same, **({"tools": [tool]} if tool else {}))
            self.assertEqual(answer.content, plain.content)

    def test_null_is_as_if_it_were_absent(self) -> None:
        text = self.ask().content[0].text
        self.assertEqual(self.ask(extra_body={"speed": None, "what": None}).content[0].text, text)
        call: dict[str, Any] = {"type": "tool_use", "id": "1", "name": "look", "input": {}, "toolset_name": None}
        result = {"type": "tool_result", "tool_use_id": "1", "content": "none", "toolset_name": None}
        turns = [*MESSAGES, {"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]
        self.assertEqual(self.ask(turns).type, "message")
        with self.assertRaises(anthropic.BadRequestError):
            self.ask([{"role": "user", "content": [{"type": "text", "text": None}]}])

    def test_what_is_wrong_is_named(self) -> None:
        held = {"type": "json_schema", "schema": SCHEMA}
        image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "x"}}
        cases: list[tuple[dict[str, Any], str]] = [
            ({"max_tokens": 0}, "max_tokens"),
            ({"extra_body": {"temperature": -1}}, "temperature"),
            ({"output_config": {"format": {"type": "json_schema", "schema": {"not": {}}}}}, "output_config.format.schema"),
            ({"extra_body": {"output_format": {"type": "json_schema", "schema": {"not": {}}}}}, "output_format.schema"),
            ({"extra_body": {"output_format": {"type": "text"}}}, "output_format.type"),
            ({"output_config": {"format": held}, "extra_body": {"output_format": held}}, "output_format"),
            ({"messages": [{"role": "user", "content": [image]}]}, "messages[0].content[0].type"),
            ({"messages": [{"role": "king", "content": "x"}]}, "messages[0].role"),
            ({"messages": [{"role": "system", "content": [{"type": "tool_result", "tool_use_id": "1"}]}]},
             "messages[0].content[0].type"),
            ({"messages": [*MESSAGES, {"role": "assistant", "content": "It"}]}, "messages"),
            ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, "tools[0].type"),
            ({"tool_choice": {"type": "any"}}, "tool_choice.type"),
            ({"tools": [TOOL], "tool_choice": {"type": "tool", "name": "x"}}, "tool_choice.name"),
            ({"extra_body": {"what": 1}}, "what"),
            ({"tools": [{**TOOL, "defer_loading": True}]}, "tools[0].defer_loading"),
            ({"tools": [{**TOOL, "allowed_callers": ["direct", "code"]}]}, "tools[0].allowed_callers"),
            ({"extra_body": {"speed": "fast"}}, "speed"),
            (edits({"type": "clear_tool_uses_20250919"}), "context_management.edits[0].type"),
            (edits({"type": "clear_thinking_20251015"}), "context_management.edits[0].keep"),
            (edits({"type": "clear_thinking_20251015", "keep": {"type": "thinking_turns", "value": 1}}),
             "context_management.edits[0].keep"),
        ]  # fmt: skip
        for parameters, name in cases:
            with self.subTest(name, **parameters), self.assertRaises(anthropic.BadRequestError) as caught:
                self.ask(**parameters)
            body: Any = caught.exception.body
            self.assertEqual((body["type"], body["error"]["type"]), ("error", "invalid_request_error"))
            self.assertTrue(body["error"]["message"].startswith(f"{name}: "), body)
        with self.assertRaises(anthropic.NotFoundError):
            self.client.messages.create(**{**self.asked(), "model": "claude"})

    def test_a_prompt_beyond_the_context_is_told_in_anthropics_words(self) -> None:
        context = json.loads(self.front.get("/v1/models")[1])["data"][0]["max_model_len"]
        for length in (context, 100 * context):  # more bytes than the context holds, too
            with self.assertRaises(anthropic.BadRequestError) as caught:
                self.ask([{"role": "user", "content": " fox" * length}])
            error: Any = caught.exception.body
            self.assertEqual(error["error"]["type"], "invalid_request_error")
            self.assertRegex(error["error"]["message"], rf"^prompt is too long: [0-9]+ tokens > {context - 1} maximum")

    def test_keys_come_in_both_headers(self) -> None:
        known = (("claude", "infer", "a-key-of-sixteen-letters"), ("watcher", "observe", "a-key-of-twenty-letters"))
        with front_of(self.daemon, "--tokens", write_tokens(pathlib.Path(self.folder) / "tokens", *known)) as front:
            for key in ({"api_key": "a-key-of-sixteen-letters"}, {"auth_token": "a-key-of-sixteen-letters"}):
                with client_of(front, **key) as client:
                    self.assertEqual(client.messages.create(**self.asked()).type, "message")
            with client_of(front, api_key="another") as client, self.assertRaises(anthropic.AuthenticationError):
                client.messages.create(**self.asked())
            watcher = client_of(front, api_key="a-key-of-twenty-letters")
            with watcher as client, self.assertRaises(anthropic.PermissionDeniedError):
                client.messages.create(**self.asked())


if __name__ == "__main__":
    main("tests.http.messages_test", "anthropic", REQUIREMENTS)
