"""/v1/completions and /v1/models of moed-http as the real `openai` package sees them; keys, limits, clients that go away."""

import asyncio
import contextlib
import json
from typing import Any

from tests.http.client_library import main
from tests.http.front import front_of
from tests.http.openai_rig import MODEL, PROMPT, REQUIREMENTS, SLOW, WAIT_SECONDS, OpenAiTestCase, client_of, running_requests
from tests.tokens import write_tokens
from tools.server_process import wait_until

with contextlib.suppress(ImportError):  # before main() has found a Python that has it
    import openai


class CompletionsTest(OpenAiTestCase):
    def complete(self, prompt: Any = PROMPT, **parameters: Any) -> Any:
        parameters = {"max_tokens": 24, "temperature": 0, **parameters}
        return self.client.completions.create(model=MODEL, prompt=prompt, **parameters)

    # Models

    def test_the_model_has_the_name_of_its_store(self) -> None:
        models = self.client.models.list().data
        self.assertEqual([model.id for model in models], [MODEL])
        model = self.client.models.retrieve(MODEL)
        self.assertEqual((model.id, model.object, model.owned_by), (MODEL, "model", "moed"))
        self.assertEqual(model.max_model_len, self.daemon.json("info")["model"]["max_context"])

    def test_another_model_is_not_found(self) -> None:
        for call in (
            lambda: self.client.models.retrieve("gpt-4o"),
            lambda: self.client.completions.create(model="gpt-4o", prompt="x"),
        ):
            with self.assertRaises(openai.NotFoundError) as caught:
                call()
            self.assertEqual((caught.exception.code, caught.exception.param), ("model_not_found", "model"))
            self.assertIn(MODEL, str(caught.exception))

    def test_names_may_be_given(self) -> None:
        with front_of(self.daemon, "--model-name", "first", "--model-name", "second") as front, client_of(front) as client:
            self.assertEqual([model.id for model in client.models.list()], ["first", "second"])
            answer = client.completions.create(model="second", prompt=PROMPT, max_tokens=2)
            self.assertEqual(answer.model, "second")

    # Completions

    def test_a_completion_is_what_the_daemon_generates(self) -> None:
        expected = self.daemon.json("generate", "--prompt", PROMPT, "--max-new-tokens", 24, "--temperature", 0)
        answer = self.complete()
        choice = answer.choices[0]
        self.assertEqual(answer.object, "text_completion")
        self.assertEqual((choice.text, choice.finish_reason, choice.logprobs), (expected["text"], "length", None))
        self.assertEqual(answer.usage.prompt_tokens, expected["usage"]["prompt_tokens"])
        self.assertEqual(answer.usage.completion_tokens, 24)
        self.assertEqual(answer.usage.total_tokens, answer.usage.prompt_tokens + 24)
        self.assertGreaterEqual(answer.usage.prompt_tokens_details.cached_tokens, 0)

    def test_a_session_goes_on_until_its_context_is_full(self) -> None:
        memory = ("--memory-budget", "64MiB", "--max-context", 64)
        with self.running("--store", self.store, *memory) as daemon, front_of(daemon) as front, client_of(front) as client:

            def go_on(prompt: str, **session: Any) -> Any:
                body = {"session_id": "mine", "ignore_eos": True, **session}
                return client.completions.create(model=MODEL, prompt=prompt, max_tokens=40, temperature=0, extra_body=body)

            first = go_on(PROMPT)
            self.assertEqual(first.session_tokens, first.usage.total_tokens)
            self.assertFalse(hasattr(first.choices[0], "stop_reason"))
            last = go_on(" And then", must_exist=True, expected_tokens=first.session_tokens)
            self.assertEqual((last.choices[0].finish_reason, last.choices[0].stop_reason), ("length", "context"))
            self.assertGreater(last.usage.prompt_tokens, first.session_tokens)
            with self.assertRaisesRegex(openai.BadRequestError, "reached its end"):
                go_on(" And then")
            with self.assertRaises(openai.BadRequestError) as nameless:
                client.completions.create(model=MODEL, prompt=PROMPT, extra_body={"must_exist": True})
            self.assertEqual(nameless.exception.param, "must_exist")

    def test_sixteen_tokens_are_the_default(self) -> None:
        answer = self.client.completions.create(model=MODEL, prompt=PROMPT, extra_body={"ignore_eos": True})
        self.assertEqual(answer.usage.completion_tokens, 16)

    def test_a_stream_is_the_same_text(self) -> None:
        whole = self.complete()
        chunks = list(self.complete(stream=True))
        self.assertEqual("".join(chunk.choices[0].text for chunk in chunks), whole.choices[0].text)
        self.assertEqual([chunk.choices[0].finish_reason for chunk in chunks][-1], "length")
        self.assertLessEqual({chunk.choices[0].finish_reason for chunk in chunks[:-1]}, {None})
        self.assertEqual(len({chunk.id for chunk in chunks}), 1)
        self.assertEqual({chunk.usage for chunk in chunks}, {None})

    def test_a_stream_ends_with_its_usage_where_that_is_asked_for(self) -> None:
        *chunks, last = self.complete(stream=True, stream_options={"include_usage": True})
        self.assertEqual({chunk.usage for chunk in chunks}, {None})
        self.assertEqual(last.choices, [])
        self.assertEqual(last.usage, self.complete().usage)

    def test_prompts_of_all_kinds(self) -> None:
        expected = self.complete().choices[0].text
        ids = json.loads(self.daemon.moectl("tokenize", "--text", PROMPT, "--json").stdout)["token_ids"]
        for prompt in ([PROMPT], ids, [ids]):
            with self.subTest(prompt):
                self.assertEqual(self.complete(prompt).choices[0].text, expected)

    def test_stop_strings_end_an_answer(self) -> None:
        text = self.complete().choices[0].text
        stop = text[10:14]
        for given in (stop, [stop, "never there"]):
            choice = self.complete(stop=given).choices[0]
            self.assertEqual((choice.text, choice.finish_reason), (text[: text.index(stop)], "stop"))

    def test_a_seed_decides(self) -> None:
        texts = [self.complete(seed=seed, temperature=1).choices[0].text for seed in (7, 7, -1, -1, 8)]
        self.assertEqual(texts[0], texts[1])
        self.assertEqual(texts[2], texts[3])
        self.assertEqual(len(set(texts)), 3)

    def test_logprobs_stand_beside_their_tokens(self) -> None:
        for stream in (False, True):
            answer = self.complete(logprobs=3, stream=stream)
            parts = [part.choices[0].logprobs for part in (answer if stream else [answer])]
            found = [part for part in parts if part is not None]
            tokens = [token for part in found for token in part.tokens]
            self.assertEqual("".join(tokens), self.complete().choices[0].text)
            offsets = [offset for part in found for offset in part.text_offset]
            self.assertEqual(offsets, [len("".join(tokens[:i])) for i in range(len(tokens))])
            for part in found:
                for token, logprob, top in zip(part.tokens, part.token_logprobs, part.top_logprobs, strict=True):
                    self.assertEqual(len(top), 3)
                    self.assertEqual(max(top, key=lambda other: top[other]), token, "greedy")
                    self.assertAlmostEqual(top[token], logprob)

    def test_a_bias_forbids_and_forces(self) -> None:
        forced = self.complete(logit_bias={"100": 100}, max_tokens=3)
        ids = json.loads(self.daemon.moectl("tokenize", "--text", PROMPT, "--json").stdout)["token_ids"]
        same = self.daemon.json(
            "generate", "--token-ids", ",".join(map(str, ids)), "--max-new-tokens", 3, "--logit-bias", "100=100"
        )
        self.assertEqual(forced.choices[0].text, same["text"])

    # Errors

    def test_what_is_wrong_is_named(self) -> None:
        cases: list[tuple[dict[str, Any], str]] = [
            ({"n": 0}, "n"),
            ({"best_of": 2}, "best_of"),
            ({"extra_body": {"echo": 1}}, "echo"),
            ({"suffix": "end"}, "suffix"),
            ({"temperature": -1}, "temperature"),
            ({"temperature": "hot"}, "temperature"),
            ({"top_p": -1}, "top_p"),
            ({"extra_body": {"use_beam_search": True}}, "use_beam_search"),
            ({"extra_body": {"length_penalty": 2}}, "length_penalty"),
            ({"extra_body": {"bad_words": ["fox"]}}, "bad_words"),
            ({"frequency_penalty": 3}, "frequency_penalty"),
            ({"presence_penalty": -2.5}, "presence_penalty"),
            ({"max_tokens": 0}, "max_tokens"),
            ({"max_tokens": 1.5}, "max_tokens"),
            ({"max_tokens": 1 << 40}, "max_tokens"),
            ({"extra_body": {"max_completion_tokens": 23}}, "max_completion_tokens"),  # beside a max_tokens of 24
            ({"max_tokens": None, "extra_body": {"max_completion_tokens": -1}}, "max_completion_tokens"),
            ({"logprobs": 21}, "logprobs"),
            ({"seed": 1.5}, "seed"),
            ({"stop": ["x"] * 17}, "stop"),
            ({"stop": [5]}, "stop[0]"),
            ({"logit_bias": {"x": 1}}, "logit_bias"),
            ({"logit_bias": {"5": 1, "05": 2}}, "logit_bias[5]"),
            ({"stream_options": {"what": 1}}, "stream_options.what"),
            ({"extra_body": {"guided_grammar": "x"}}, "guided_grammar"),
            ({"extra_body": {"fidelity": "some"}}, "fidelity"),
            ({"prompt": []}, "prompt"),
            ({"prompt": [[1, "x"]]}, "prompt[0][1]"),
            ({"prompt": 5}, "prompt"),
            ({"prompt": [1 << 30]}, "prompt[0]"),
        ]
        for parameters, name in cases:
            with self.subTest(name, **parameters), self.assertRaises(openai.BadRequestError) as caught:
                self.complete(**parameters)
            error = caught.exception
            self.assertEqual((error.param, error.type), (name, "invalid_request_error"), error.message)
            self.assertIn(name.partition("[")[0], str(error.body["message"]) if isinstance(error.body, dict) else "")

    def test_an_answer_may_be_one_of_several_texts(self) -> None:
        choice = ["[yes]", "no (|)", "n.."]
        for parameters in ({"structured_outputs": {"choice": choice}}, {"guided_choice": choice}):
            answer = self.complete(max_tokens=32, temperature=1, extra_body=parameters)
            self.assertEqual((answer.choices[0].text in choice, answer.choices[0].finish_reason), (True, "stop"), answer)
        with self.assertRaises(openai.BadRequestError) as caught:
            self.complete(extra_body={"structured_outputs": {"regex": "(?=a)"}})
        self.assertEqual(caught.exception.param, "structured_outputs.regex")
        with self.assertRaises(openai.BadRequestError) as caught:
            self.complete(extra_body={"response_format": {"type": "json_schema", "json_schema": {"schema": {"not": {}}}}})
        self.assertEqual(caught.exception.param, "response_format.json_schema")

    def test_more_tokens_than_the_context_leaves_are_those_that_it_leaves(self) -> None:
        context = self.client.models.retrieve(MODEL).max_model_len
        for most in (context, (1 << 31) - 1):
            answer = self.complete([5] * (context - 4), max_tokens=most, extra_body={"ignore_eos": True})
            self.assertEqual((answer.choices[0].finish_reason, answer.usage.completion_tokens), ("length", 4))
        with (
            self.running("--store", self.store, "--max-new-tokens", 8) as daemon,
            front_of(daemon) as front,
            client_of(front) as client,
            self.assertRaises(openai.BadRequestError) as caught,
        ):
            client.completions.create(model=MODEL, prompt=PROMPT, max_tokens=9)
        self.assertEqual(caught.exception.param, "max_tokens")
        self.assertIn("9 is not in [1, 8], the server's --max-new-tokens", str(caught.exception))

    def test_errors_before_a_stream_begins_have_a_status(self) -> None:
        with self.assertRaises(openai.BadRequestError):
            self.complete(top_p=2, stream=True)

    def test_bodies_beyond_the_limit_are_refused(self) -> None:
        with self.assertRaises(openai.APIStatusError) as caught:
            self.complete("x" * (5 << 20))
        self.assertEqual(caught.exception.status_code, 413)

    def test_keys(self) -> None:
        known = (("one", "infer", "sk-0123456789abcdef"), ("two", "infer,observe", "sk-fedcba9876543210"))
        with front_of(self.daemon, "--tokens", write_tokens(self.folder / "tokens", *known)) as front:
            for key, allowed in (
                ("sk-0123456789abcdef", True),
                ("sk-fedcba9876543210", True),
                ("sk-0123456789abcdeF", False),
                ("x", False),
            ):
                with client_of(front, key) as client:
                    if allowed:
                        self.assertEqual(len(client.models.list().data), 1)
                        continue
                    with self.assertRaises(openai.AuthenticationError) as caught:
                        client.completions.create(model=MODEL, prompt=PROMPT)
                    self.assertEqual(caught.exception.code, "invalid_api_key")
            self.assertEqual(front.get("/healthz")[0], 200)
            self.assertNotIn("sk-", front.log())

    def test_a_busy_daemon_asks_for_patience(self) -> None:
        one_at_a_time = self.running("--store", self.store, *SLOW, "--max-running", 1, "--queue-capacity", 0)
        with one_at_a_time as daemon, front_of(daemon) as front, client_of(front) as client, long_stream(client) as stream:
            next(stream)
            with self.assertRaises(openai.RateLimitError) as caught:
                client.completions.create(model=MODEL, prompt=PROMPT)
            self.assertEqual(caught.exception.response.headers["retry-after"], "1")

    # Clients that come and go

    def test_a_client_that_goes_away_ends_its_request(self) -> None:
        with self.running("--store", self.store, *SLOW) as daemon, front_of(daemon) as front, client_of(front) as client:
            with long_stream(client) as stream:
                for _ in range(3):
                    next(stream)
            wait_until(lambda: running_requests(daemon) == 0, "the stream to be cancelled", WAIT_SECONDS)
            with self.assertRaises(openai.APITimeoutError):
                client.with_options(timeout=0.5).completions.create(
                    model=MODEL, prompt=PROMPT, max_tokens=1000, extra_body={"ignore_eos": True}
                )
            wait_until(lambda: running_requests(daemon) == 0, "the whole answer to be cancelled", WAIT_SECONDS)
            generated = int(daemon.json("stats")["stats"]["generated_tokens"])
            self.assertLess(generated, 1000)
            wait_until(lambda: len([line for line in front.requests_logged() if line["gone"]]) == 2, "the log", WAIT_SECONDS)

    def test_many_streams_at_once(self) -> None:
        expected = self.complete(max_tokens=64).choices[0].text

        async def answer(client: Any) -> str:
            stream = await client.completions.create(model=MODEL, prompt=PROMPT, max_tokens=64, temperature=0, stream=True)
            return "".join([chunk.choices[0].text async for chunk in stream])

        async def all_answers() -> list[str]:
            async with openai.AsyncOpenAI(base_url=f"http://{self.front.address}/v1", api_key="none", max_retries=0) as client:
                return await asyncio.gather(*(answer(client) for _ in range(32)))

        self.assertEqual(set(asyncio.run(all_answers())), {expected})

    def test_nothing_of_a_prompt_is_logged(self) -> None:
        self.complete("a secret of the kingdom", stop="never")
        with contextlib.suppress(openai.BadRequestError):
            self.complete("another secret", top_p=2)
        self.assertNotIn("secret", self.front.log())


def long_stream(client: Any) -> Any:
    return client.completions.create(
        model=MODEL, prompt=PROMPT, max_tokens=1000, temperature=0, stream=True, extra_body={"ignore_eos": True}
    )


if __name__ == "__main__":
    main("tests.http.completions_test", "openai", REQUIREMENTS)
