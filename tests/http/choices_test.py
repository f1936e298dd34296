"""Answers of several choices: more prompts than one in a request, and `n`; whole and as streams, with the real daemon."""

import json
import math
import sys
import threading
from collections.abc import Iterator
from typing import Any, ClassVar

import grpc

from tests.http.front import Front, front_of
from tests.http.openai_rig import MODEL, PROMPT, SLOW, WAIT_SECONDS, running_requests
from tests.http.scripted_daemon import ScriptedDaemon, ScriptedDaemonTest, until_cancelled
from tests.http.served import ServedTest
from tests.real_programs import main
from tools.server_process import wait_until

pb: Any = None  # made from proto/ when the tests begin
PROMPTS = (PROMPT, "The fox said", "In the forest", "A king had three", "She opened the door", "Far away")
FOREVER = {"max_tokens": 900, "ignore_eos": True}


def events_of(front: Front, path: str, body: Any) -> list[Any]:
    """Of a stream that ends as it should."""
    with front.stream(path, {**body, "stream": True}) as answer:
        events = [line.removeprefix(b"data: ").strip() for line in answer if line.startswith(b"data: ")]
    assert events.pop() == b"[DONE]"
    return [json.loads(event) for event in events]


def texts_of(answer: Any) -> list[str]:
    return [choice["text"] for choice in answer["choices"]]


class ChoicesTest(ServedTest):
    def complete(self, prompt: Any, front: Front | None = None, **more: Any) -> Any:
        status, answer = self.post(prompt, front, **more)
        self.assertEqual(status, 200, answer)
        self.assertEqual([choice["index"] for choice in answer["choices"]], list(range(len(answer["choices"]))))
        return answer

    def post(self, prompt: Any, front: Front | None = None, **more: Any) -> tuple[int, Any]:
        return (front or self.front).post("/v1/completions", self.body(prompt, **more))

    def body(self, prompt: Any, **more: Any) -> dict[str, Any]:
        return {"model": MODEL, "prompt": prompt, "max_tokens": 12, **more}

    def refused(self, parameter: str, words: str, prompt: Any = PROMPT, **more: Any) -> None:
        status, answer = self.post(prompt, **more)
        self.assertEqual((status, answer["error"].get("param")), (400, parameter), answer)
        self.assertIn(words, answer["error"]["message"])

    def ids(self, text: str) -> list[int]:
        tokens: list[int] = json.loads(self.daemon.moectl("tokenize", "--text", text, "--json").stdout)["token_ids"]
        return tokens

    # Prompts

    def test_each_prompt_is_answered_as_if_it_were_alone(self) -> None:
        sampling: dict[str, Any] = {"seed": 5, "temperature": 1}
        alone = [self.complete(prompt, **sampling) for prompt in PROMPTS]
        for prompts in (list(PROMPTS), [self.ids(prompt) for prompt in PROMPTS]):
            answer = self.complete(prompts, **sampling)
            self.assertEqual(texts_of(answer), [texts_of(each)[0] for each in alone])
            for name in ("prompt_tokens", "completion_tokens", "total_tokens"):
                self.assertEqual(answer["usage"][name], sum(each["usage"][name] for each in alone), name)

    def test_choices_to_one_prompt_have_seeds_one_after_the_other(self) -> None:
        alone = [self.complete(PROMPT, seed=seed, temperature=1) for seed in (7, 8, 9, 10, 11)]
        answer = self.complete(PROMPT, seed=7, temperature=1, n=5, best_of=5)
        texts = texts_of(answer)
        self.assertEqual(texts, [texts_of(each)[0] for each in alone])
        self.assertEqual(len(set(texts)), 5)
        self.assertEqual(answer["usage"]["prompt_tokens"], alone[0]["usage"]["prompt_tokens"], "its tokens count once")
        self.assertEqual(answer["usage"]["completion_tokens"], sum(each["usage"]["completion_tokens"] for each in alone))
        self.assertEqual(len(set(texts_of(self.complete(PROMPT, temperature=1, n=3)))), 3, "seeds are drawn for each")

    def test_prompts_come_one_after_the_other_with_all_their_choices(self) -> None:
        sampling: dict[str, Any] = {"seed": 3, "temperature": 1, "n": 2}
        expected = [text for prompt in PROMPTS[:3] for text in texts_of(self.complete(prompt, **sampling))]
        self.assertEqual(texts_of(self.complete(list(PROMPTS[:3]), **sampling)), expected)

    def test_a_stream_has_the_same_choices(self) -> None:
        more: dict[str, Any] = {"seed": 3, "temperature": 1, "n": 2, "logprobs": 2, "stream_options": {"include_usage": True}}
        whole = self.complete(list(PROMPTS), **{**more, "stream_options": None})
        *events, last = events_of(self.front, "/v1/completions", self.body(list(PROMPTS), **more))
        self.assertEqual((last["choices"], last["usage"]["total_tokens"]), ([], whole["usage"]["total_tokens"]))
        for choice in whole["choices"]:
            parts = [event["choices"][0] for event in events if event["choices"][0]["index"] == choice["index"]]
            self.assertEqual("".join(part["text"] for part in parts), choice["text"])
            self.assertEqual([part["finish_reason"] for part in parts if part["finish_reason"]], [choice["finish_reason"]])
            for name in ("tokens", "text_offset", "token_logprobs"):
                found = [value for part in parts if part["logprobs"] for value in part["logprobs"][name]]
                self.assertEqual(found, choice["logprobs"][name])

    def test_conversations_have_choices(self) -> None:
        body = {"model": MODEL, "messages": [{"role": "user", "content": "Tell me of a fox."}], "max_tokens": 12, "seed": 4}
        status, answer = self.front.post("/v1/chat/completions", {**body, "n": 3, "temperature": 1})
        self.assertEqual(status, 200, answer)
        texts = [choice["message"]["content"] for choice in answer["choices"]]
        for i, text in enumerate(texts):
            alone = self.front.post("/v1/chat/completions", {**body, "seed": 4 + i, "temperature": 1})[1]
            self.assertEqual(text, alone["choices"][0]["message"]["content"])
        self.assertEqual(len(set(texts)), 3)
        events = events_of(self.front, "/v1/chat/completions", {**body, "n": 3, "temperature": 1})
        choices = [event["choices"][0] for event in events]
        for i, text in enumerate(texts):
            deltas = [choice["delta"] for choice in choices if choice["index"] == i]
            self.assertEqual(deltas[0]["role"], "assistant")
            self.assertEqual("".join(delta.get("content", "") for delta in deltas), text)

    # Refusals

    def test_what_is_wrong_with_a_prompt_has_its_index(self) -> None:
        long = "x " * 5000
        status, answer = self.post([PROMPT, long, PROMPT])
        self.assertEqual((status, answer["error"]["param"]), (400, "prompt[1]"), answer)
        self.assertEqual(answer["error"]["code"], "context_length_exceeded")
        self.refused("prompt[2][1]", "vocabulary", [[1], [2], [3, 1 << 30]])
        self.refused("prompt[1]", "neither", [PROMPT, 5])
        self.refused("prompt[1][0]", "", [[1], ["x"]])

    def test_bounds(self) -> None:
        self.refused("n", "[1, 128]", n=0)
        self.refused("n", "[1, 128]", n=129)
        self.refused("n", "at most 128", [PROMPT] * 65, n=2)
        self.refused("prompt", "at most 128", [PROMPT] * 129)
        self.refused("best_of", "n = 2", n=2, best_of=3)
        self.refused("session_id", "2 choices", n=2, session_id="mine")
        self.refused("session_id", "128", session_id="s" * 9000)
        self.assertEqual(len(self.complete([[1]] * 64, n=2, max_tokens=1)["choices"]), 128)

    # The daemon's places

    def test_choices_wait_for_one_another_where_the_daemon_has_one_place(self) -> None:
        one = ("--memory-budget", "64MiB", "--max-running", 1, "--queue-capacity", 0)
        with self.running("--store", self.store, *one) as daemon, front_of(daemon) as front:
            expected = texts_of(self.complete(list(PROMPTS), temperature=0))
            self.assertEqual(texts_of(self.complete(list(PROMPTS), front, temperature=0)), expected)
            events = events_of(front, "/v1/completions", self.body(list(PROMPTS), temperature=0))
            self.assertEqual({event["choices"][0]["index"] for event in events}, set(range(len(PROMPTS))))

    def test_a_client_that_goes_away_ends_all_its_choices(self) -> None:
        with self.running("--store", self.store, *SLOW) as daemon, front_of(daemon) as front:
            with front.stream("/v1/completions", self.body(list(PROMPTS) * 4, **FOREVER, stream=True)) as answer:
                answer.readline()
                self.assertLessEqual(running_requests(daemon), 4, "a request takes no more places")
            wait_until(lambda: running_requests(daemon) == 0, "the choices to be cancelled", WAIT_SECONDS)
            connection = front.connection()
            body = json.dumps(self.body(list(PROMPTS) * 4, **FOREVER)).encode()
            connection.request("POST", "/v1/completions", body, {"content-type": "application/json"})
            wait_until(lambda: running_requests(daemon) == 4, "four of them to run", WAIT_SECONDS)
            connection.close()
            wait_until(lambda: running_requests(daemon) == 0, "the whole answer to be cancelled", WAIT_SECONDS)
            wait_until(lambda: len([line for line in front.requests_logged() if line["gone"]]) == 2, "the log", WAIT_SECONDS)
            self.assertEqual(running_requests(daemon), 0, "none of the others has begun")


class EchoTest(ServedTest):
    def complete(self, prompt: Any, **more: Any) -> Any:
        body = {"model": MODEL, "prompt": prompt, "max_tokens": 8, "temperature": 0, **more}
        status, answer = self.front.post("/v1/completions", body)
        self.assertEqual(status, 200, answer)
        return answer

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        sys.path.insert(0, str(cls.generate_stubs()))
        from moe.v1 import inference_pb2 as pb
        from moe.v1 import inference_pb2_grpc as services

        channel = cls.enterClassContext(grpc.insecure_channel(cls.daemon.address))
        stub = services.InferenceStub(channel)
        cls.score = staticmethod(lambda text, top=0: stub.Score(pb.ScoreRequest(text=text, top_logprobs=top)))  # type: ignore[attr-defined]

    def test_a_prompt_comes_before_its_answer(self) -> None:
        texts = [choice["text"] for choice in self.complete(list(PROMPTS), n=2)["choices"]]
        expected = [prompt + texts[2 * i + j] for i, prompt in enumerate(PROMPTS) for j in range(2)]
        echoed = self.complete(list(PROMPTS), n=2, echo=True)
        self.assertEqual([choice["text"] for choice in echoed["choices"]], expected)
        self.assertEqual({choice["logprobs"] for choice in echoed["choices"]}, {None})
        body = {"model": MODEL, "prompt": list(PROMPTS), "max_tokens": 8, "temperature": 0, "n": 2, "echo": True}
        streamed = [""] * len(expected)
        for event in events_of(self.front, "/v1/completions", body):
            streamed[event["choices"][0]["index"]] += event["choices"][0]["text"]
        self.assertEqual(streamed, expected)

    def test_what_a_prompt_is_worth_is_what_the_daemon_scores(self) -> None:
        for most in (0, 1, 8):
            answer = self.complete(list(PROMPTS), echo=True, logprobs=2, max_tokens=most)
            plain = self.complete(list(PROMPTS), logprobs=2)
            for choice, alone, prompt in zip(answer["choices"], plain["choices"], PROMPTS, strict=True):
                with self.subTest(prompt, most=most):
                    scored = self.score(prompt, 2)  # type: ignore[attr-defined]
                    length = len(scored.token_ids)
                    found = choice["logprobs"]
                    self.assertEqual(len(found["tokens"]), length + most)
                    self.assertEqual("".join(found["tokens"]), choice["text"])
                    self.assertEqual("".join(found["tokens"][:length]), prompt)
                    self.assertIsNone(found["token_logprobs"][0])
                    self.assertIsNone(found["top_logprobs"][0])
                    for value, expected in zip(found["token_logprobs"][1:length], scored.logprobs, strict=True):
                        self.assertTrue(math.isclose(value, expected, rel_tol=1e-6), (value, expected))
                    for top, value, best in zip(
                        found["top_logprobs"][1:length], found["token_logprobs"][1:length], scored.top, strict=True
                    ):
                        self.assertTrue(math.isclose(max(top.values()), best.logprobs[0], rel_tol=1e-6))
                        self.assertIn(value, top.values())
                    offsets = [len("".join(found["tokens"][:i])) for i in range(length + most)]
                    self.assertEqual(found["text_offset"], offsets)
                    for name in ("tokens", "token_logprobs", "top_logprobs"):
                        self.assertEqual(found[name][length:], alone["logprobs"][name][:most])
            self.assertEqual(answer["usage"]["completion_tokens"], most * len(PROMPTS))
            self.assertEqual({choice["finish_reason"] for choice in answer["choices"]}, {"length"})

    def test_what_comes_with_an_answers_end_is_one_event_of_a_stream(self) -> None:
        for prompt, more in ((list(PROMPTS), {"logprobs": 2}), (PROMPT, {"max_tokens": 0}), ([1, 2], {})):
            wanted = {"model": MODEL, "prompt": prompt, "max_tokens": 8, "temperature": 0, "echo": True, "n": 2, **more}
            whole = self.complete(**wanted)
            chunk, last = events_of(self.front, "/v1/completions", {**wanted, "stream_options": {"include_usage": True}})
            self.assertEqual((chunk["choices"], chunk["usage"]), (whole["choices"], None))
            self.assertEqual((last["choices"], last["usage"]["completion_tokens"]), ([], whole["usage"]["completion_tokens"]))
        self.assertEqual(self.front.post("/v1/completions", {**wanted, "stream": True, "temperature": -1})[0], 400)

    def test_token_ids_are_echoed_as_what_they_say(self) -> None:
        ids = json.loads(self.daemon.moectl("tokenize", "--text", PROMPT, "--json").stdout)["token_ids"]
        answer = self.complete([ids, ids], echo=True)
        expected = PROMPT + self.complete(PROMPT)["choices"][0]["text"]
        self.assertEqual([(choice["text"], choice["logprobs"]) for choice in answer["choices"]], [(expected, None)] * 2)
        self.assertEqual(self.complete(PROMPT, echo=True, max_tokens=0)["choices"][0]["text"], PROMPT)

    def test_offsets_are_those_of_the_text_whatever_its_bytes(self) -> None:
        """Of a token that is no UTF-8 the text has U+FFFD."""
        tokens = {
            self.complete([[id]], echo=True, max_tokens=0, logprobs=0)["choices"][0]["logprobs"]["tokens"][0]: id
            for id in range(256)
        }
        odd = next(id for token, id in tokens.items() if token == "bytes:\\x82")
        for prompt in ([odd] * 3, PROMPT):
            more = {"logit_bias": {str(odd): 100}, "max_tokens": 3, "logprobs": 0, "echo": True}
            choice = self.complete(prompt, **more)["choices"][0]
            found = choice["logprobs"]
            begin = choice["text"].index("\ufffd")
            odds = [offset for token, offset in zip(found["tokens"], found["text_offset"], strict=True) if token == "bytes:\\x82"]
            self.assertEqual(odds, list(range(begin, begin + len(odds))))
            self.assertEqual(choice["text"][begin:], "\ufffd" * len(odds))

    def test_what_does_not_go_with_an_echo(self) -> None:
        cases: list[tuple[dict[str, Any], str]] = [
            ({"logprobs": 1, "session_id": "mine"}, "echo"),
            ({"max_tokens": 0, "echo": False}, "max_tokens"),
            ({"max_tokens": 0, "min_tokens": 1}, "min_tokens"),
            ({"logprobs": 20, "prompt": "a " * 500}, "logprobs"),
            ({"echo": 1}, "echo"),
        ]
        for more, parameter in cases:
            body = {"model": MODEL, "prompt": PROMPT, "max_tokens": 2, "echo": True, **more}
            status, answer = self.front.post("/v1/completions", body)
            self.assertEqual((status, answer["error"]["param"]), (400, parameter), (more, answer))


class Answers:
    """Answers by the prompt: "text N" with so many letters, "go on" without an end, "fail" with an error when it may."""

    def __init__(self) -> None:
        self.lock = threading.Condition()
        self.may_fail = threading.Event()
        self.names: list[str] = []
        self.going_on = self.cancelled = 0

    def daemon(self) -> ScriptedDaemon:
        return ScriptedDaemon({"/moe.v1.Inference/Generate": self.whole}, {"/moe.v1.Inference/GenerateStream": self.stream})

    def whole(self, body: bytes, context: Any) -> bytes:
        return next(self.stream(body, context))

    def stream(self, body: bytes, context: Any) -> Iterator[bytes]:
        request = pb.GenerateRequest.FromString(body)
        with self.lock:
            self.names.append(request.request_id)
        word, _, count = request.text.partition(" ")
        if word == "fail":
            self.may_fail.wait()
            context.abort(grpc.StatusCode.INTERNAL, "it broke")
        usage = pb.Usage(prompt_tokens=1, completion_tokens=1)
        finish = None if word == "go" else pb.Finish(reason=pb.FINISH_REASON_STOP, usage=usage)
        if word == "go" and context.add_callback(lambda: self.count(cancelled=1)):  # called by now, or at its end
            self.count(going_on=1)
        yield pb.GenerateResponse(text="x" * int(count if word == "text" and count else 1), finish=finish).SerializeToString()
        if word == "go":
            until_cancelled(context)

    def count(self, going_on: int = 0, cancelled: int = 0) -> None:
        with self.lock:
            self.going_on += going_on
            self.cancelled += cancelled
            self.lock.notify_all()


class ScriptedChoicesTest(ScriptedDaemonTest):
    """What no real daemon does when a test wants it."""

    answers: ClassVar[Answers]

    @classmethod
    def script(cls) -> ScriptedDaemon:
        cls.answers = Answers()
        return cls.answers.daemon()

    @classmethod
    def setUpClass(cls) -> None:
        global pb
        super().setUpClass()
        sys.path.insert(0, str(cls.generate_stubs()))
        from moe.v1 import inference_pb2 as pb

    def post(self, *prompts: str, **more: Any) -> tuple[int, Any]:
        return self.front.post("/v1/completions", {"model": "scripted", "prompt": prompts, **more})

    def test_each_choice_has_a_name_of_its_own(self) -> None:
        status, answer = self.post("text", "text", n=3)
        self.assertEqual(status, 200, answer)
        own = [name for name in self.answers.names if name.startswith(answer["id"])]  # others may come late, of calls before
        self.assertEqual(sorted(own), [f"{answer['id']}-{i}" for i in range(6)])
        status, answer = self.post("text")
        self.assertIn(answer["id"], self.answers.names)

    def test_where_one_fails_all_fail(self) -> None:
        self.answers.may_fail.set()
        status, answer = self.post("text", "fail", "text")
        self.assertEqual((status, answer["error"]["type"]), (500, "server_error"), answer)

    def test_a_stream_breaks_off_where_one_fails(self) -> None:
        self.answers.may_fail.clear()
        self.answers.cancelled = self.answers.going_on = 0
        body = {"model": "scripted", "prompt": ["go on", "fail", "go on"], "stream": True}
        with self.front.stream("/v1/completions", body) as stream:
            self.assertIn(b"choices", stream.readline())
            self.answers.may_fail.set()
            *texts, error = [json.loads(line.removeprefix(b"data: ")) for line in stream if line.startswith(b"data: ")]
        self.assertIn("it broke", error["error"]["message"])
        self.assertLessEqual({text["choices"][0]["index"] for text in texts}, {0, 2})
        with self.answers.lock:
            ended = self.answers.lock.wait_for(lambda: self.answers.cancelled == self.answers.going_on, WAIT_SECONDS)
        self.assertTrue(ended, "the others are cancelled")

    def test_whole_answers_are_bounded(self) -> None:
        three = f"text {3 << 20}"
        self.assertEqual(self.post(*[three] * 5)[0], 200)
        status, answer = self.post(*[three] * 8)
        self.assertEqual((status, answer["error"]["code"]), (413, "request_too_large"))
        self.assertIn("16777216 bytes", answer["error"]["message"])


if __name__ == "__main__":
    main()
