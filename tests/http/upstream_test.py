"""What moed-http makes of what a daemon says of itself, of its model and of what it refuses: a scripted one says it."""

import contextlib
import json
import re
import socket
import struct
import sys
import threading
import urllib.parse
from concurrent import futures
from typing import Any, ClassVar

import grpc

from tests.http.front import CALL_SECONDS, Front, front_of_nobody
from tests.http.scripted_daemon import ScriptedDaemon, ScriptedDaemonTest, field, serving, status_details
from tests.real_programs import main

pb: Any = None  # made from proto/ when the tests begin
NAME = "Qwen/Qwen3 30B:q4"
MESSAGES = [{"role": "user", "content": "x"}]
ANTHROPIC = {"anthropic-version": "2023-06-01"}


class Refuser:
    """Refuses all that is to be computed, and says how long to wait where it is told to."""

    def __init__(self) -> None:
        self.retry_seconds: int | None = None
        self.answer: Any = None
        self.peers: list[str] = []  # of the calls
        self.together: threading.Barrier | None = None

    def daemon(self) -> ScriptedDaemon:
        methods = ("Chat", "Generate", "CountTokens")
        return ScriptedDaemon({f"/moe.v1.Inference/{name}": self.respond for name in methods}, {})

    def respond(self, _: bytes, context: Any) -> bytes:
        self.peers.append(context.peer())
        if self.together is not None:
            context.send_initial_metadata(())
            self.together.wait(CALL_SECONDS)
        if self.answer is not None:
            answer: bytes = self.answer.SerializeToString()
            return answer
        if self.retry_seconds is not None:
            duration = bytes((1 << 3, self.retry_seconds))
            context.set_trailing_metadata(status_details(8, b"RetryInfo", field(1, duration)))
        context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "Received message larger than max (1400051 vs. 1310720)")
        raise AssertionError


class Breaker:
    """Passes bytes on between its address and another, and breaks the first connection that sends more than so many."""

    def __init__(self, target: str, most_bytes: int) -> None:
        host, port = target.split(":")
        self._target = (host, int(port))
        self._left = most_bytes
        self.broken = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def close(self) -> None:
        """Once its connections have ended."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                self._threads.append(threading.Thread(target=self._serve, args=self._listener.accept()[:1], daemon=True))
                self._threads[-1].start()

    def _serve(self, near: socket.socket) -> None:
        with near, socket.create_connection(self._target) as far:
            back = threading.Thread(target=self._pass, args=(far, near, sys.maxsize), daemon=True)
            back.start()
            self._pass(near, far, self._left)
            back.join()

    def _pass(self, one: socket.socket, other: socket.socket, most: int) -> None:
        with contextlib.suppress(OSError):
            while data := one.recv(1 << 16):
                most -= len(data)
                if most < 0 and self.broken == 0:
                    self.broken = 1
                    break
                other.sendall(data)
        for each in (one, other):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)


class UpstreamTest(ScriptedDaemonTest):
    model_name = NAME
    daemon: ClassVar[Refuser]

    @classmethod
    def script(cls) -> ScriptedDaemon:
        cls.daemon = Refuser()
        return cls.daemon.daemon()

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        global pb
        sys.path.insert(0, str(cls.generate_stubs()))
        from moe.v1 import inference_pb2 as pb

    def setUp(self) -> None:
        self.daemon.retry_seconds = self.daemon.answer = self.daemon.together = None
        self.daemon.peers.clear()

    def headers_of(self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None) -> tuple[int, Any, Any]:
        with contextlib.closing(self.front.connection()) as connection:
            sent = {"content-type": "application/json", **(headers or {})}
            connection.request(method, path, None if body is None else json.dumps(body).encode(), sent)
            with connection.getresponse() as answer:
                return answer.status, answer.headers, json.loads(answer.read())

    def test_what_is_too_large_does_not_wait(self) -> None:
        quoted = urllib.parse.quote(NAME, safe="")
        chat = {"model": NAME, "messages": MESSAGES, "max_tokens": 2}
        cases: tuple[tuple[str, Any, Any, Any], ...] = (
            (
                "/v1/chat/completions",
                chat,
                ("invalid_request_error", "request_too_large"),
                ("rate_limit_error", "rate_limit_exceeded"),
            ),
            ("/v1/messages", chat, ("request_too_large", None), ("rate_limit_error", None)),
            (f"/v2/models/{quoted}/generate", {"text_input": "x"}, None, None),
        )
        for path, body, too_large, too_many in cases:
            for seconds, expected, said in ((None, 413, too_large), (7, 429, too_many)):
                with self.subTest(path, seconds=seconds):
                    self.daemon.retry_seconds = seconds
                    status, headers, answer = self.headers_of("POST", path, body)
                    self.assertEqual((status, headers["retry-after"]), (expected, None if seconds is None else "7"), answer)
                    error = answer["error"]
                    self.assertIn("larger than max", error if said is None else error["message"])
                    if said is not None:
                        self.assertEqual((error["type"], error.get("code")), said)

    def test_large_requests_have_a_connection_of_their_own(self) -> None:
        """Which the daemon may end without ending anybody else's calls."""
        small, large = "x", "x" * (20 << 10)
        quoted = urllib.parse.quote(NAME, safe="")
        peers: dict[str, set[str]] = {}
        for text in (small, large, small, large):
            messages = {"model": NAME, "messages": [{"role": "user", "content": text}], "max_tokens": 2}
            for path, body in (
                ("/v1/chat/completions", messages),
                ("/v1/completions", {"model": NAME, "prompt": text}),
                ("/v1/messages", messages),
                ("/v1/messages/count_tokens", {"model": NAME, "messages": messages["messages"]}),
                (f"/v2/models/{quoted}/generate", {"text_input": text}),
            ):
                self.assertEqual(self.headers_of("POST", path, body)[0], 413, path)
            peers.setdefault(text, set()).update(self.daemon.peers)
            self.daemon.peers.clear()
        self.assertEqual(len(peers[small]), 1)
        self.assertFalse(peers[small] & peers[large])

    def test_large_requests_share_no_connection_and_wait_only_until_one_has_arrived(self) -> None:
        """They take more than may be on its way at once, and none is answered before all are there."""
        many = 3
        self.daemon.together = threading.Barrier(many)
        body = {"model": NAME, "prompt": "x" * (700 << 10)}
        with futures.ThreadPoolExecutor(many) as pool:
            asked = [pool.submit(self.front.post, "/v1/completions", body) for _ in range(many)]
            self.assertEqual([each.result()[0] for each in asked], [413] * many)
        self.assertEqual(len(set(self.daemon.peers)), many)

    def test_a_large_request_whose_connection_breaks_is_sent_again(self) -> None:
        address = self.enterContext(serving(self.daemon.daemon()))
        breaker = self.enterContext(contextlib.closing(Breaker(address, most_bytes=1 << 20)))
        front = self.enterContext(contextlib.closing(Front(self.binaries, breaker.address, "--model-name", NAME)))
        front.wait_until_ready()
        body = {"model": NAME, "prompt": "x" * (2 << 20)}
        self.assertEqual(front.post("/v1/completions", body)[0], 413)
        self.assertEqual((breaker.broken, len(self.daemon.peers)), (1, 1))

    def test_names_in_paths_may_be_escaped(self) -> None:
        for quoted in ("Qwen%2FQwen3%2030B:q4", "Qwen/Qwen3%2030B%3aq4"):
            status, body = self.front.get(f"/v1/models/{quoted}")
            self.assertEqual((status, json.loads(body)["id"]), (200, NAME))
            status, body = self.front.get(f"/v2/models/{quoted}")
            self.assertEqual((status, json.loads(body)["name"]), (200, NAME))
        self.assertEqual(self.front.get("/v1/models/Qwen%2")[0], 404)

    def test_anthropics_clients_are_answered_as_they_expect(self) -> None:
        status, headers, listed = self.headers_of("GET", "/v1/models", None, ANTHROPIC)
        [model] = listed.pop("data")
        self.assertEqual((status, listed), (200, {"has_more": False, "first_id": NAME, "last_id": NAME}))
        self.assertRegex(model.pop("created_at"), r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(Z|\+00:00)$")
        self.assertEqual(model, {"type": "model", "id": NAME, "display_name": NAME})
        self.assertEqual(headers["request-id"], headers["x-request-id"])
        one = self.headers_of("GET", f"/v1/models/{urllib.parse.quote(NAME, safe='')}", None, ANTHROPIC)[2]
        self.assertEqual((one["type"], one["id"]), ("model", NAME))
        self.assertEqual(self.headers_of("GET", "/v1/models/x", None, ANTHROPIC)[2]["type"], "error")
        for path in ("/v1/messages/batches", "/v1/messages/batches/b/results"):
            status, _, answer = self.headers_of("POST", path, {})
            self.assertEqual((status, answer["type"], answer["error"]["type"]), (404, "error", "not_found_error"))
        status, headers, _ = self.headers_of("POST", "/v1/messages", {})
        self.assertEqual((status, headers["request-id"]), (400, headers["x-request-id"]))
        self.assertEqual(set(self.headers_of("GET", "/v2/nowhere")[2]), {"error"})
        self.assertIsInstance(self.headers_of("GET", "/v2/nowhere")[2]["error"], str)

    def test_the_chosen_token_is_among_the_most_likely(self) -> None:
        top = [pb.TokenLogprob(token=b"a", logprob=-0.5)]
        chosen = pb.TokenLogprob(token=b"z", logprob=-4, top=top)
        self.daemon.answer = pb.GenerateResponse(text="z", logprobs=[chosen], finish=pb.Finish())
        status, answer = self.front.post("/v1/completions", {"model": NAME, "prompt": "x", "logprobs": 1})
        self.assertEqual(status, 200, answer)
        self.assertEqual(answer["choices"][0]["logprobs"]["top_logprobs"], [{"a": -0.5, "z": -4.0}])

    def test_refusals_name_all_that_is_taken(self) -> None:
        for parameter, value, words in (("modalities", ["audio"], '["text"]'), ("service_tier", "flex", '"auto" and "default"')):
            body = {"model": NAME, "messages": MESSAGES, parameter: value}
            status, answer = self.front.post("/v1/chat/completions", body)
            self.assertEqual(status, 400)
            self.assertIn(words, answer["error"]["message"])

    def test_the_log_says_once_why_the_daemon_is_not_reached(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as nobody:
            front = Front(self.binaries, f"127.0.0.1:{nobody.getsockname()[1]}")
            with contextlib.closing(front):
                nobody.settimeout(CALL_SECONDS)

                def end_two() -> list[str]:
                    for reset in (True, False):
                        connection = nobody.accept()[0]
                        connection.recv(1 << 16)
                        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", reset, 0))
                        connection.close()
                    return re.findall("the daemon is not reached: (.*)", front.log())

                front.wait_for(lambda: len(set(end_two())) > 1, "two reasons")
                end_two()
                said = end_two()
                self.assertEqual(len(said), len(set(said)), said)
        with front_of_nobody(self.binaries) as refused:
            refused.wait_for_line(r"the daemon is not reached: (.*Connection refused)")


if __name__ == "__main__":
    main()
