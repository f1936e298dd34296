"""What moed-http takes of memory: large requests that wait for the daemon, answers that wait for their clients."""

import contextlib
import http.client
import json
import socket
import sys
import threading
from collections.abc import Iterator
from concurrent import futures
from typing import Any

from tests.http.front import CALL_SECONDS, Front
from tests.http.scripted_daemon import ScriptedDaemon, serving
from tests.real_programs import RealProgramsTest, main
from tools.server_process import wait_until

pb: Any = None
control: Any = None  # both made from proto/ when the tests begin
MODEL = "scripted"
MIB = 1 << 20
COMPLETIONS = "/v1/completions"
BOUND = 64 * MIB  # --max-bodies
BESIDE = 40 * MIB  # for what is read, made and sent at the moment, where bodies are texts
MOST = 384 * MIB  # of the process, whatever comes: docs/http.md, and less than what deploy/ gives
LARGE_PROMPT = 3 * MIB
CHOICES = 4
LARGE_ANSWER = 6 * MIB  # a little less than that of Waiter.detokenize


class Waiter:
    """Answers a prompt that begins with "wait" when it may, "text N" with so many letters, and tokens with a text that JSON makes
    six times as long."""

    def __init__(self) -> None:
        self.may_answer = threading.Event()

    def daemon(self) -> ScriptedDaemon:
        methods = {"Generate": self.generate, "Chat": lambda *_: b"", "Detokenize": self.detokenize}
        streams = {"/moe.v1.Inference/GenerateStream": lambda *asked: iter([self.generate(*asked)])}
        unary = {f"/moe.v1.Inference/{name}": method for name, method in methods.items()}
        maps = {"/moe.v1.Control/GetExpertMap": self.expert_map, "/moe.v1.Control/GetStats": lambda *_: b""}
        return ScriptedDaemon({**unary, **maps}, streams)

    def generate(self, body: bytes, _: Any) -> bytes:
        word, _, count = pb.GenerateRequest.FromString(body).text[:100].partition(" ")
        if word == "wait":
            self.may_answer.wait(CALL_SECONDS)
        text = "x" * int(count) if word == "text" else "x"
        answer: bytes = pb.GenerateResponse(text=text, finish=pb.Finish(reason=pb.FINISH_REASON_STOP)).SerializeToString()
        return answer

    def expert_map(self, body: bytes, _: Any) -> bytes:
        """Large where it is the first."""
        numbers = [1 << 40] * 1024
        layer = control.LayerExperts(
            expert=range(1024), resident=[1] * 1024, hits=numbers, misses=numbers, lowered=numbers, skipped=numbers, reads=numbers
        )
        layer.on_device.extend([0] * 1024)
        first = control.GetExpertMapRequest.FromString(body).since == 0
        told: bytes = control.ExpertMap(now=1, experts=1024, layers=[layer] * 64 * first).SerializeToString()
        return told

    def detokenize(self, *_: Any) -> bytes:
        answer: bytes = pb.DetokenizeResponse(text="\1" * MIB).SerializeToString()
        return answer


class MemoryTest(RealProgramsTest):
    daemon: Waiter
    address: str

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        global pb, control
        sys.path.insert(0, str(cls.generate_stubs()))
        from moe.v1 import control_pb2 as control
        from moe.v1 import inference_pb2 as pb

    def setUp(self) -> None:
        self.daemon = Waiter()
        self.address = self.enterContext(serving(self.daemon.daemon()))
        self.addCleanup(self.daemon.may_answer.set)

    @contextlib.contextmanager
    def front(self, *flags: object) -> Iterator[Front]:
        flags = ("--model-name", MODEL, "--ping-seconds", 1, *flags)
        with contextlib.closing(Front(self.binaries, self.address, *flags)) as front:
            front.wait_until_ready()
            yield front

    @contextlib.contextmanager
    def stays_below(self, front: Front, bytes_more: int) -> Iterator[None]:
        before = front.memory_bytes("VmRSS")
        yield
        self.assertLess((front.memory_bytes("VmHWM") - before) // MIB, bytes_more // MIB)

    def waiters(self, front: Front, count: int) -> list[http.client.HTTPResponse]:
        """Streams of choices to large prompts, which have begun by a ping."""
        body = {"model": MODEL, "prompt": f"wait {'x' * LARGE_PROMPT}", "n": CHOICES, "stream": True}
        connections = [self.enterContext(contextlib.closing(front.connection())) for _ in range(count)]
        for connection in connections:
            connection.request("POST", COMPLETIONS, json.dumps(body).encode(), {"content-type": "application/json"})
        answers = [self.enterContext(connection.getresponse()) for connection in connections]
        self.assertEqual({answer.status for answer in answers}, {200})
        return answers

    def slow_reader(self, front: Front) -> socket.socket:
        """Of a large answer, which has begun."""
        body = json.dumps({"tokens": [1]}).encode()
        head = b"POST /detokenize HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-type: application/json\r\n"
        reader = self.enterContext(socket.socket())
        reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16 << 10)
        reader.settimeout(CALL_SECONDS)
        reader.connect(("127.0.0.1", front.port))
        reader.sendall(head + b"content-length: %d\r\n\r\n%s" % (len(body), body))
        self.assertEqual(reader.recv(1), b"H")
        return reader

    # Requests

    def test_choices_of_large_requests_are_copied_only_on_their_way(self) -> None:
        with self.front() as front, self.stays_below(front, BOUND + BESIDE):
            answers = self.waiters(front, BOUND // LARGE_PROMPT)
            self.daemon.may_answer.set()
            for answer in answers:
                self.assertEqual(answer.read().count(b'"finish_reason":"stop"'), CHOICES)

    def test_what_is_made_of_a_body_counts_where_it_is_larger(self) -> None:
        many = {"model": MODEL, "messages": [{}] * 100_000}
        with self.front("--max-bodies", "4MiB") as front:
            self.assertEqual(front.post("/v1/chat/completions", many)[0], 200, "one alone may be larger")
            self.waiters(front, 1)
            status, answer = front.post("/v1/chat/completions", many)
            self.assertEqual((status, answer["error"]["message"]), (503, "too many large requests at once"))
            self.assertEqual(front.post(COMPLETIONS, {"model": MODEL, "prompt": "x"})[0], 200)

    def test_lists_have_no_more_elements_than_the_daemon_takes(self) -> None:
        with self.front() as front:
            for path, parameter, element, most in (
                (COMPLETIONS, "stop", "", 16),
                (COMPLETIONS, "stop_token_ids", 1, 64),
                ("/v1/messages", "stop_sequences", "", 16),
            ):
                asked = {"messages": [{"role": "user", "content": "x"}]} if path == "/v1/messages" else {"prompt": "x"}
                body = {"model": MODEL, "max_tokens": 2, **asked}
                self.assertEqual(front.post(path, {**body, parameter: [element] * most})[0], 200)
                status, answer = front.post(path, {**body, parameter: [element] * (most + 1)})
                self.assertEqual((status, answer["error"]["type"]), (400, "invalid_request_error"))
                words = f"{parameter}: {most + 1} entries, at most {most} are allowed"
                self.assertEqual(answer["error"]["message"], words)

    # Answers

    def test_slow_readers_are_given_up_before_their_answers_take_too_much(self) -> None:
        readers, fit = 40, BOUND // LARGE_ANSWER
        with self.front() as front, self.stays_below(front, BOUND + BESIDE):
            sockets = [self.slow_reader(front) for _ in range(readers)]
            whole = [bytes_of(each) > LARGE_ANSWER for each in sockets]
            self.assertEqual(whole, [i >= readers - fit for i in range(readers)], "the last ones have it all")
            gone = readers - fit
            wait_until(lambda: front.metric("moe_http_clients_gone_total") == gone, "it to be counted", CALL_SECONDS)

    def test_choices_that_wait_for_the_last_one_are_bounded(self) -> None:
        body = {"model": MODEL, "prompt": [f"text {3 * MIB}", "wait"]}
        with self.front("--max-bodies", "8MiB") as front, futures.ThreadPoolExecutor(3) as pool:
            asked = [pool.submit(front.post, COMPLETIONS, body) for _ in range(3)]
            first = next(futures.as_completed(asked)).result()
            self.daemon.may_answer.set()
            self.assertEqual((first[0], first[1]["error"]["message"]), (503, "too many large answers at once"))
            self.assertEqual(sorted(each.result()[0] for each in asked), [200, 200, 503])

    def test_who_watches_the_experts_keeps_no_map(self) -> None:
        with self.front() as front, self.stays_below(front, 2 * BESIDE):
            for _ in range(40):
                connection = self.enterContext(contextlib.closing(front.connection()))
                connection.request("GET", "/moed/experts")
                answer = self.enterContext(connection.getresponse())
                self.assertGreater(len(answer.readline()), 4 * MIB, "less than the map takes")

    # Both

    def test_all_of_it_together(self) -> None:
        """The last ones are what a byte of a body makes most of."""
        hostile = b'{"model": "scripted", "messages": [%s]}' % b",".join([b"{}"] * 300_000)
        with self.front() as front:
            for _ in range(2 * BOUND // LARGE_ANSWER):
                self.slow_reader(front)
            self.waiters(front, 18)
            with futures.ThreadPoolExecutor(8) as pool:
                answers = list(pool.map(lambda _: front.post("/v1/chat/completions", hostile), range(16)))
            self.assertEqual({status for status, _ in answers}, {503})
            self.assertLess(front.memory_bytes("VmHWM") // MIB, MOST // MIB)


def bytes_of(connection: socket.socket) -> int:
    """All that still comes."""
    count = 0
    with contextlib.suppress(ConnectionResetError):
        while data := connection.recv(1 << 20):
            count += len(data)
    return count


if __name__ == "__main__":
    main()
