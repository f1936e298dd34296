"""What a stream says while the daemon says nothing: proxies take a silent connection for dead."""

import http.client
import json
import sys
import threading
from collections.abc import Iterator
from typing import Any, ClassVar

import grpc

from tests.http.front import CALL_SECONDS, Front
from tests.http.scripted_daemon import ScriptedDaemon, field, serving, status_details
from tests.real_programs import RealProgramsTest, main

pb: Any = None  # made from proto/ when the tests begin
SAID = [{"role": "user", "content": "x"}]
COMMENT, EVENT = b": ping\n\n", b'event: ping\ndata: {"type":"ping"}\n\n'
FORMS: tuple[tuple[str, dict[str, Any], bytes], ...] = (
    ("/v1/chat/completions", {"messages": SAID}, COMMENT),
    ("/v1/messages", {"messages": SAID, "max_tokens": 5}, EVENT),
)


class Slow:
    """Says where a request waits, and answers when it is told to."""

    def __init__(self) -> None:
        self.speaks = threading.Event()
        self.fails = False
        self.refuses: tuple[Any, ...] = ()  # what it fails with instead: a code, words, metadata

    def daemon(self) -> ScriptedDaemon:
        return ScriptedDaemon({}, {"/moe.v1.Inference/ChatStream": self.stream})

    def stream(self, _: bytes, context: Any) -> Iterator[bytes]:
        context.send_initial_metadata((("moe-queue-position", "7"),))
        self.speaks.wait(CALL_SECONDS)
        if self.refuses:
            code, words, metadata = self.refuses
            context.set_trailing_metadata(metadata)
            context.abort(code, words)
        if self.fails:
            context.abort(grpc.StatusCode.UNAVAILABLE, "the daemon is ending")
        for answer in (pb.ChatResponse(text="A fox."), pb.ChatResponse(finish=pb.Finish(reason=pb.FINISH_REASON_STOP))):
            yield answer.SerializeToString()


class SilenceTest(RealProgramsTest):
    daemon: ClassVar[Slow]
    front: ClassVar[Front]

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        global pb
        sys.path.insert(0, str(cls.generate_stubs()))
        from moe.v1 import inference_pb2 as pb

        cls.daemon = Slow()
        address = cls.enterClassContext(serving(cls.daemon.daemon()))
        cls.front = Front(cls.binaries, address, "--model-name", "m", "--ping-seconds", 1)
        cls.addClassCleanup(cls.front.close)
        cls.front.wait_until_ready()

    def heard(self, path: str, body: dict[str, Any], ping: bytes) -> bytes:
        """What comes after two pings."""
        self.daemon.speaks.clear()
        with self.front.stream(path, {"model": "m", "stream": True, **body}) as answer:
            self.assertEqual((answer.status, answer.getheader("moe-queue-position")), (200, "7"))
            self.assertEqual(answer.getheader("content-type"), "text/event-stream; charset=utf-8")
            self.assertEqual(answer.getheader("x-accel-buffering"), "no", "or nginx keeps it")
            self.assertEqual(answer.read(2 * len(ping)), 2 * ping)
            self.daemon.speaks.set()
            return answer.read()

    def test_a_stream_goes_on_after_its_pings_and_a_failure_is_its_last_event(self) -> None:
        self.addCleanup(setattr, self.daemon, "fails", False)
        for fails, words in ((False, b'"A fox."'), (True, b"the daemon is ending")):
            self.daemon.fails = fails
            for path, body, ping in FORMS:
                with self.subTest(path, fails=fails):
                    self.assertIn(words, self.heard(path, body, ping))

    def response_events(self) -> list[dict[str, Any]]:
        """Of a response, the daemon of which speaks after three events."""

        def event(answer: http.client.HTTPResponse) -> dict[str, Any]:
            kind, data, end = (answer.readline() for _ in range(3))
            self.assertEqual((kind[:7], data[:6], end), (b"event: ", b"data: ", b"\n"))
            told: dict[str, Any] = json.loads(data[6:])
            self.assertEqual(kind[7:-1].decode(), told["type"])
            return told

        self.daemon.speaks.clear()
        with self.front.stream("/v1/responses", {"model": "m", "stream": True, "input": "x"}) as answer:
            events = [event(answer) for _ in range(3)]
            self.daemon.speaks.set()
            while not events[-1]["type"].endswith((".completed", ".failed")):
                events.append(event(answer))
            self.assertEqual(answer.read(), b"")
        self.assertEqual([each["sequence_number"] for each in events], list(range(len(events))))
        kinds = [str(each["type"]) for each in events]
        self.assertEqual(kinds[:3], ["response.created", "response.in_progress", "response.in_progress"])
        self.assertEqual(kinds.count("response.created"), 1)
        return events

    def test_the_signs_of_life_of_a_response_are_events(self) -> None:
        events = self.response_events()
        self.assertEqual([each["response"]["status"] for each in events[:3]], ["in_progress"] * 3)
        self.assertEqual(events[-1]["response"]["output"][0]["content"][0]["text"], "A fox.")

    def test_the_code_of_a_failed_response_says_whether_to_ask_again(self) -> None:
        self.addCleanup(setattr, self.daemon, "refuses", ())
        tokens = field(3, field(1, b"context_tokens") + field(2, b"64"))
        beyond = status_details(3, b"ErrorInfo", field(1, b"CONTEXT_LENGTH") + field(2, b"moed") + tokens)
        invalid = grpc.StatusCode.INVALID_ARGUMENT
        for refusal, code in (
            ((invalid, "messages: too long", beyond), "context_length_exceeded"),
            ((invalid, "messages: no such role", ()), "invalid_prompt"),
            ((grpc.StatusCode.CANCELLED, "aborted by Control.Abort", ()), "invalid_prompt"),
            ((grpc.StatusCode.UNAVAILABLE, "the daemon is ending", ()), "server_error"),
        ):
            self.daemon.refuses = refusal
            with self.subTest(code):
                failed = self.response_events()[-1]
                self.assertEqual((failed["type"], failed["response"]["error"]["code"]), ("response.failed", code))

    def test_what_fails_before_has_a_status(self) -> None:
        self.addCleanup(setattr, self.daemon, "refuses", ())
        self.daemon.speaks.set()
        for code, status in ((grpc.StatusCode.UNAVAILABLE, 503), (grpc.StatusCode.CANCELLED, 499)):
            self.daemon.refuses = (code, "the daemon is ending", ())
            for path, body, _ in FORMS:
                told, answer = self.front.post(path, {"model": "m", "stream": True, **body})
                self.assertEqual((told, answer["error"]["message"]), (status, "the daemon is ending"), path)


if __name__ == "__main__":
    main()
