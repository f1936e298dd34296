"""/v1/chat/completions of moed-http as the real `openai` package sees it."""

import asyncio
import contextlib
import itertools
import json
from typing import Any

from tests.http.client_library import main
from tests.http.front import front_of
from tests.http.openai_rig import MODEL, REQUIREMENTS, SLOW, WAIT_SECONDS, OpenAiTestCase, client_of, running_requests
from tools.daemon import DEMO_CHECKPOINT, pack
from tools.server_process import wait_until

with contextlib.suppress(ImportError):  # before main() has found a Python that has it
    import openai

QUESTION = "Tell me of a little fox."
MESSAGES = [{"role": "user", "content": QUESTION}]
# What the demo model's template makes of it.
RENDERED = f"<|user|>{QUESTION}<|assistant|>"
TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}

IMAGE = {"type": "image_url", "image_url": {"url": "x"}}


def allowed_tools(choice: dict[str, Any]) -> dict[str, Any]:
    return {"tools": [TOOL], "tool_choice": {"type": "allowed_tools", "allowed_tools": choice}}


class ChatTest(OpenAiTestCase):
    def ask(self, messages: Any = None, **parameters: Any) -> Any:
        length = {} if "max_tokens" in parameters else {"max_completion_tokens": 24}
        parameters = {**length, "temperature": 0, **parameters}
        return self.client.chat.completions.create(model=MODEL, messages=messages or MESSAGES, **parameters)

    def test_an_answer_is_what_the_daemon_generates(self) -> None:
        expected = self.daemon.json("generate", "--prompt", RENDERED, "--max-new-tokens", 24, "--temperature", 0)
        answer = self.ask()
        choice = answer.choices[0]
        self.assertEqual((answer.object, answer.model, choice.index), ("chat.completion", MODEL, 0))
        self.assertTrue(answer.id.startswith("chatcmpl-"))
        self.assertEqual((choice.message.role, choice.message.content), ("assistant", expected["text"]))
        self.assertEqual((choice.finish_reason, choice.logprobs, choice.message.tool_calls), ("length", None, None))
        self.assertEqual(answer.usage.prompt_tokens, expected["usage"]["prompt_tokens"])
        self.assertEqual((answer.usage.completion_tokens, answer.usage.total_tokens), (24, answer.usage.prompt_tokens + 24))

    def test_contents_of_both_kinds(self) -> None:
        parts = [{"type": "text", "text": text} for text in ("Tell me", "", "of a fox.")]
        texts = [
            self.ask([{"role": "user", "content": content}]).choices[0].message.content
            for content in (parts, "Tell me\nof a fox.")
        ]
        self.assertEqual(texts[0], texts[1])

    def test_what_clients_add_to_messages_changes_nothing(self) -> None:
        def answer(content: Any, **further: Any) -> Any:
            turns = [*MESSAGES, {"role": "assistant", "content": content, **further}, {"role": "user", "content": "And then?"}]
            return self.ask(turns).choices[0].message.content

        plain = answer("A fox.")
        for kind in ("text", "message"):
            self.assertEqual(answer("A fox.", type=kind), plain)
        nothing = ("parsed", "id", "cache_control", "provider_specific_fields", "thinking_blocks", "reasoning_details")
        self.assertEqual(answer("A fox.", **{name: {"a": [1]} for name in nothing}), plain)
        text = {"type": "text", "text": "A fox.", "cache_control": {"type": "ephemeral"}, "annotations": []}
        thought: dict[str, Any] = {"type": "thinking", "thinking": "Hm.", "signature": "x"}
        thoughts = {"type": "thinking", "thinking": [{"type": "text", "text": "Hm."}], "closed": True}
        for part in (text, {"type": "refusal", "refusal": "A fox."}):
            self.assertEqual(answer([part]), plain)
            self.assertEqual(answer([thought, part]), plain)
            self.assertEqual(answer([thoughts, part]), plain)
        function = {"name": "f", "arguments": "{}"}
        call = {"id": "1", "type": "function", "function": function}
        further = {**call, "provider_specific_fields": {}, "function": {**function, "parsed_arguments": {}}}
        self.assertEqual(answer("A fox.", tool_calls=[further]), answer("A fox.", tool_calls=[call]))
        with self.assertRaises(openai.BadRequestError) as caught:
            answer([{"type": "thinking", "thinking": [{"type": "image"}]}])
        self.assertEqual(caught.exception.param, "messages[1].content[0].thinking[0].type")

    def test_paths_with_a_slash_too_many(self) -> None:
        for path in ("/v1/models/", "//v1/models", f"//v1/models/{MODEL}/"):
            self.assertEqual(self.front.get(path)[0], 200, path)
        asked = {"model": MODEL, "messages": MESSAGES, "max_tokens": 1}
        self.assertEqual(self.front.post("//v1/chat/completions", asked)[0], 200)

    def test_an_answer_can_be_sent_back(self) -> None:
        message = self.ask().choices[0].message
        turns = [*MESSAGES, message, {"role": "user", "content": "And then?"}]
        expected = self.daemon.json(
            "generate", "--prompt", f"{RENDERED}{message.content}<|end|><|user|>And then?<|assistant|>",
            "--max-new-tokens", 24, "--temperature", 0,
        )  # fmt: skip
        for messages in (turns, [*MESSAGES, message.model_dump(), turns[-1]]):
            self.assertEqual(self.ask(messages).choices[0].message.content, expected["text"])

    def test_a_stream_is_the_same_text(self) -> None:
        first, *chunks = self.ask(stream=True)
        self.assertEqual((first.choices[0].delta.role, first.choices[0].delta.content), ("assistant", ""))
        self.assertEqual("".join(chunk.choices[0].delta.content or "" for chunk in chunks), self.ask().choices[0].message.content)
        self.assertEqual([chunk.choices[0].finish_reason for chunk in chunks][-1], "length")
        self.assertLessEqual({chunk.choices[0].finish_reason for chunk in chunks[:-1]}, {None})
        self.assertEqual({(chunk.id, chunk.object) for chunk in chunks}, {(first.id, "chat.completion.chunk")})

    def test_a_stream_ends_with_its_usage_where_that_is_asked_for(self) -> None:
        *chunks, last = self.ask(stream=True, stream_options={"include_usage": True, "continuous_usage_stats": True})
        self.assertEqual({chunk.usage for chunk in chunks}, {None})
        self.assertEqual((last.choices, last.usage.completion_tokens), ([], 24))

    def test_the_librarys_own_stream_puts_an_answer_together(self) -> None:
        text = self.ask().choices[0].message.content
        wanted = {"max_completion_tokens": 24, "temperature": 0, "stop": text[10:14]}  # it refuses answers that end by length
        with self.client.chat.completions.stream(model=MODEL, messages=MESSAGES, **wanted) as stream:
            final = stream.get_final_completion()
        self.assertEqual(final.choices[0].message.content, text[: text.index(text[10:14])])

    def test_stop_and_seed(self) -> None:
        text = self.ask().choices[0].message.content
        choice = self.ask(stop=text[10:14]).choices[0]
        self.assertEqual((choice.message.content, choice.finish_reason), (text[: text.index(text[10:14])], "stop"))
        drawn = [self.ask(seed=seed, temperature=1).choices[0].message.content for seed in (7, 7, 8)]
        self.assertEqual(drawn[0], drawn[1])
        self.assertNotEqual(drawn[0], drawn[2])

    def test_a_schema_is_kept(self) -> None:
        schema = {
            "type": "object",
            "properties": {"animal": {"enum": ["fox", "cat"]}},
            "required": ["animal"],
            "additionalProperties": False,
        }
        held = {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}
        answer = self.ask(response_format=held, max_completion_tokens=64).choices[0]
        self.assertEqual(answer.finish_reason, "stop")
        self.assertIn(json.loads(answer.message.content)["animal"], ("fox", "cat"))

    def test_logprobs_stand_beside_their_tokens(self) -> None:
        text = self.ask().choices[0].message.content
        whole = self.ask(logprobs=True, top_logprobs=3).choices[0].logprobs.content
        chunks = [chunk.choices[0].logprobs for chunk in self.ask(logprobs=True, top_logprobs=3, stream=True)]
        streamed = [token for logprobs in chunks if logprobs for token in logprobs.content]
        self.assertEqual(streamed, whole)
        self.assertEqual(b"".join(bytes(token.bytes) for token in whole).decode(), text)
        for token in whole:
            self.assertEqual(len(token.top_logprobs), 3)
            self.assertEqual((token.top_logprobs[0].token, token.top_logprobs[0].logprob), (token.token, token.logprob), "greedy")

    def test_a_model_that_knows_no_tools_can_be_made_to_call_one(self) -> None:
        template = self.folder / "llama.jinja"
        template.write_text('{{ messages[0].content }}{# <|start_header_id|> "parameters": #}')  # whose calls are bare JSON
        store = self.folder / "calls.moed"
        pack(
            self.binaries,
            DEMO_CHECKPOINT,
            store,
            "--expert-formats",
            "q8",
            "--trunk-format",
            "q8",
            "--chat-template",
            str(template),
        )
        schema = {
            "type": "object",
            "properties": {"animal": {"enum": ["fox", "cat"]}, "hops": {"type": "integer", "minimum": 1, "maximum": 9}},
            "required": ["animal", "hops"],
            "additionalProperties": False,
        }
        tool = {"type": "function", "function": {"name": "look", "parameters": schema, "strict": True}}
        wanted = {"model": "calls", "messages": MESSAGES, "tools": [tool], "temperature": 0, "max_completion_tokens": 400}
        with (
            self.running("--store", store, "--memory-budget", "64MiB") as daemon,
            front_of(daemon) as front,
            client_of(front) as client,
        ):
            named = {"type": "function", "function": {"name": "look"}}
            for choice in (named, "required"):
                answer = client.chat.completions.create(**wanted, tool_choice=choice, parallel_tool_calls=False).choices[0]
                self.assertEqual((answer.finish_reason, answer.message.content), ("tool_calls", None))
                call = answer.message.tool_calls[0].function
                arguments = json.loads(call.arguments)
                self.assertEqual((call.name, sorted(arguments)), ("look", ["animal", "hops"]))
                self.assertIn((arguments["animal"], arguments["hops"]), itertools.product(("fox", "cat"), range(1, 10)))
            with client.chat.completions.stream(**wanted, tool_choice=named) as stream:
                final = stream.get_final_completion().choices[0]
            self.assertEqual(final.message.tool_calls[0].function.arguments, call.arguments)
            self.check_that_a_cut_call_can_be_sent_back(client, {**wanted, "tool_choice": named})
            other = {"type": "function", "function": {"name": "other", "strict": True, "parameters": {"type": "object"}}}
            allowed = {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [named]}}
            answer = client.chat.completions.create(**{**wanted, "tools": [other, tool]}, tool_choice=allowed).choices[0]
            self.assertEqual({each.function.name for each in answer.message.tool_calls}, {"look"})
            auto = client.chat.completions.create(**wanted).choices[0]
            self.assertIsNone(auto.message.tool_calls, "a tale")

    def check_that_a_cut_call_can_be_sent_back(self, client: Any, wanted: dict[str, Any]) -> None:
        def cut(tokens: int) -> Any:
            choice = client.chat.completions.create(**{**wanted, "max_completion_tokens": tokens}).choices[0]
            calls = choice.message.tool_calls
            return choice.message if choice.finish_reason == "length" and calls and calls[0].function.arguments else None

        message = next(filter(None, map(cut, range(1, 400))))
        with self.assertRaises(json.JSONDecodeError):
            json.loads(message.tool_calls[0].function.arguments)
        result = {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": "no such animal"}
        again = client.chat.completions.create(**{**wanted, "messages": [*MESSAGES, message, result]})
        self.assertEqual(again.choices[0].finish_reason, "tool_calls")

    def test_sessions_say_what_they_hold(self) -> None:
        def turn(content: str, stream: bool = False, headers: Any = None, **expected: Any) -> Any:
            messages = [{"role": "user", "content": content}]
            body = {"session_id": "of http", **expected}
            return self.ask(messages, max_completion_tokens=8, stream=stream, extra_body=body, extra_headers=headers)

        with self.assertRaises(openai.NotFoundError) as unknown:
            turn("Hello", must_exist=True)
        self.assertEqual(unknown.exception.status_code, 404)
        first = turn("Hello", expected_tokens=0)
        self.assertEqual(first.session_tokens, first.usage.prompt_tokens + 8)
        again = list(turn("Hello", stream=True, must_exist=True, expected_tokens=first.session_tokens))
        self.assertEqual(again[-1].session_tokens, first.session_tokens)
        self.assertFalse([chunk for chunk in again[:-1] if hasattr(chunk, "session_tokens")])
        with self.assertRaises(openai.BadRequestError) as other:
            turn("Hello", expected_tokens=3)
        self.assertIn(f"holds {first.session_tokens} tokens", str(other.exception))
        turn("Hello", headers={"moe-session-id": "of http"})
        for headers, body in (({"moe-session-id": "another"}, {"session_id": "mine"}), ({"moe-session-id": "mine"}, {})):
            with self.assertRaises(openai.BadRequestError) as differs:
                self.ask(extra_headers=headers, extra_body=body)
            self.assertEqual(differs.exception.param, "session_id")
        self.assertFalse(hasattr(self.ask(), "session_tokens"))

    def test_what_is_wrong_is_named(self) -> None:
        cases: list[tuple[dict[str, Any], str]] = [
            ({"n": 0}, "n"),
            ({"temperature": -1}, "temperature"),
            ({"max_completion_tokens": 0}, "max_completion_tokens"),
            ({"max_tokens": 5, "max_completion_tokens": 6}, "max_tokens"),
            ({"max_tokens": 0}, "max_tokens"),
            ({"top_logprobs": 21, "logprobs": True}, "top_logprobs"),
            ({"top_logprobs": 2}, "top_logprobs"),
            ({"response_format": {"type": "xml"}}, "response_format.type"),
            ({"response_format": {"type": "json_schema"}}, "response_format.json_schema.schema"),
            ({"parallel_tool_calls": 1}, "parallel_tool_calls"),
            ({"store": True}, "store"),
            ({"service_tier": "flex"}, "service_tier"),
            ({"modalities": ["audio"]}, "modalities"),
            ({"functions": [{"name": "look"}]}, "functions"),
            ({"verbosity": "low"}, "verbosity"),
            ({"extra_body": {"best_of": 2}}, "best_of"),
            ({"extra_body": {"add_generation_prompt": False}}, "add_generation_prompt"),
            ({"extra_body": {"continue_final_message": True}}, "continue_final_message"),
            ({"tools": [TOOL, {"type": "function", "function": {"name": ""}}]}, "tools[1].function.name"),
            ({"messages": [{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "{]"}}]}]},
             "messages[0].tool_calls[0].function.arguments"),
            ({"extra_body": {"what": 1}}, "what"),
            ({"extra_body": {"chat_template_kwargs": 5}}, "chat_template_kwargs"),
            ({"tools": [{"type": "custom", "custom": {}}]}, "tools[0].type"),
            ({"tools": [{**TOOL, "function": {**TOOL["function"], "strict": 1}}]}, "tools[0].function.strict"),  # type: ignore[dict-item]
            ({"tools": [TOOL], "tool_choice": "required"}, "tool_choice"),
            ({"tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "x"}}}, "tool_choice.function.name"),
            ({"tool_choice": "any"}, "tool_choice"),
            (allowed_tools({"tools": []}), "tool_choice.allowed_tools.mode"),
            (allowed_tools({"mode": "auto"}), "tool_choice.allowed_tools.tools"),
            (allowed_tools({"mode": "none", "tools": []}), "tool_choice.allowed_tools.mode"),
            (allowed_tools({"mode": "auto", "tools": [{"type": "function", "function": {"name": "x"}}]}),
             "tool_choice.allowed_tools.tools[0].function.name"),
            ({"messages": "x"}, "messages"),
            ({"messages": [5]}, "messages[0]"),
            ({"messages": [{"role": 5, "content": "x"}]}, "messages[0].role"),
            ({"messages": [{"role": "king", "content": "x"}]}, "messages[0].role"),
            ({"messages": [{"role": "user", "content": [IMAGE]}]}, "messages[0].content[0].type"),
            ({"messages": [{"role": "user", "content": "x", "what": 1}]}, "messages[0].what"),
            ({"messages": [{"role": "user", "content": "x", "type": "function_call"}]}, "messages[0].type"),
            ({"messages": [{"role": "assistant", "tool_calls": [{"id": 5}]}]}, "messages[0].tool_calls[0].id"),
        ]  # fmt: skip
        for parameters, name in cases:
            with self.subTest(name, **parameters), self.assertRaises(openai.BadRequestError) as caught:
                self.ask(**parameters)
            self.assertEqual(caught.exception.param, name, caught.exception.message)

    def test_what_is_wrong_is_told_in_the_callers_words(self) -> None:
        cases: list[tuple[dict[str, Any], str, str]] = [
            ({"max_tokens": "3"}, '"3" is no whole number', "2147483647"),
            ({"max_tokens": 1 << 40}, f"{1 << 40} is out of range", "2147483647"),
            ({"top_logprobs": 2}, "logprobs: true", "response."),
            ({"extra_body": {"fidelity": "x"}}, "fidelity: 'x': expected exact", "--fidelity"),
        ]
        for parameters, words, others in cases:
            with self.subTest(**parameters), self.assertRaises(openai.BadRequestError) as caught:
                self.ask(**parameters)
            self.assertIn(words, caught.exception.message)
            self.assertNotIn(others, caught.exception.message)

    def test_a_prompt_beyond_the_context_is_told_in_openais_words(self) -> None:
        context = self.client.models.retrieve(MODEL).max_model_len
        for length in (context, 100 * context):  # more bytes than the context holds, too
            with self.assertRaises(openai.BadRequestError) as caught:
                self.ask([{"role": "user", "content": " fox" * length}])
            error = caught.exception
            self.assertEqual(
                (error.code, error.param, error.type), ("context_length_exceeded", "messages", "invalid_request_error")
            )
            self.assertIn(f"This model's maximum context length is {context} tokens", error.message)

    def test_what_changes_nothing_is_taken(self) -> None:
        text = self.ask().choices[0].message.content
        same = self.ask(
            n=1, user="me", store=False, service_tier="auto", metadata={"a": "b"}, response_format={"type": "text"},
            parallel_tool_calls=False, modalities=["text"], tool_choice="none", prompt_cache_key="k",
            verbosity="medium", functions=[],
            extra_body={"chat_template_kwargs": {"enable_thinking": False}, "fidelity": "exact", "best_of": 1,
                        "length_penalty": 1.0, "use_beam_search": False, "bad_words": [], "add_generation_prompt": True,
                        "continue_final_message": False, "spaces_between_special_tokens": True},
        )  # fmt: skip
        self.assertEqual(same.choices[0].message.content, text)
        self.assertEqual(self.ask(max_tokens=24, max_completion_tokens=24).choices[0].message.content, text)
        for greedy in ({"top_p": 0}, {"extra_body": {"min_p": 1}}):
            self.assertEqual(self.ask(temperature=1, **greedy).choices[0].message.content, text)

    def test_null_is_as_if_it_were_absent(self) -> None:
        text = self.ask().choices[0].message.content
        nulls = {"temperature": 0, "top_p": None, "prompt_logprobs": None, "response_format": {"type": "text", "what": None}}
        messages = [{**MESSAGES[0], "what": None}]
        self.assertEqual(self.ask(messages, extra_body=nulls).choices[0].message.content, text)
        chunks = list(self.ask(stream=True, extra_body={"stream_options": {"include_usage": None, "what": None}}))
        self.assertEqual("".join(chunk.choices[0].delta.content or "" for chunk in chunks), text)
        for absent in ({"role": "user", "content": [{"type": "text", "text": None}]}, {"role": None, "content": "x"}):
            with self.subTest(**absent), self.assertRaises(openai.BadRequestError):
                self.ask([absent])

    def test_a_client_that_goes_away_ends_its_request(self) -> None:
        with self.running("--store", self.store, *SLOW) as daemon, front_of(daemon) as front, client_of(front) as client:
            stream = client.chat.completions.create(
                model=MODEL, messages=MESSAGES, max_tokens=1000, stream=True, extra_body={"ignore_eos": True}
            )
            with stream:
                next(stream)
            wait_until(lambda: running_requests(daemon) == 0, "the stream to be cancelled", WAIT_SECONDS)
            self.assertLess(int(daemon.json("stats")["stats"]["generated_tokens"]), 1000)

    def test_an_answer_that_the_operator_ends_is_not_asked_for_again(self) -> None:
        with self.running("--store", self.store, *SLOW) as daemon, front_of(daemon) as front, client_of(front) as client:
            with client.chat.completions.create(
                model=MODEL, messages=MESSAGES, max_tokens=1000, stream=True, extra_body={"ignore_eos": True}
            ) as stream:
                daemon.moectl("abort", next(stream).id)
                with self.assertRaises(openai.APIError) as caught:
                    for _ in stream:
                        pass
            self.assertEqual((caught.exception.code, caught.exception.type), ("cancelled", "invalid_request_error"))
            self.assertIn("aborted", caught.exception.message)

    def test_many_streams_at_once(self) -> None:
        expected = self.ask().choices[0].message.content

        async def answer(client: Any) -> str:
            stream = await client.chat.completions.create(
                model=MODEL, messages=MESSAGES, max_completion_tokens=24, temperature=0, stream=True
            )
            return "".join([chunk.choices[0].delta.content or "" async for chunk in stream])

        async def all_answers() -> list[str]:
            async with openai.AsyncOpenAI(base_url=f"http://{self.front.address}/v1", api_key="none", max_retries=0) as client:
                return await asyncio.gather(*(answer(client) for _ in range(32)))

        self.assertEqual(set(asyncio.run(all_answers())), {expected})


if __name__ == "__main__":
    main("tests.http.chat_test", "openai", REQUIREMENTS)
