"""What a stream says while the daemon says nothing: proxies take a silent connection for dead."""

import sys
import threading
from collections.abc import Iterator
from typing import Any, ClassVar

import grpc

from tests.http.front import CALL_SECONDS, Front
from tests.http.scripted_daemon import ScriptedDaemon, serving
from tests.real_programs import RealProgramsTest, main

pb: Any = None  # made from proto/ when the tests begin
SAID = [{"role": "user", "content": "x"}]
COMMENT, EVENT = b": ping\n\n", b'event: ping\ndata: {"type":"ping"}\n\n'
FORMS: tuple[tuple[str, dict[str, Any], bytes], ...] = (
    ("/v1/chat/completions", {"messages": SAID}, COMMENT),
    ("/v1/responses", {"input": "x"}, COMMENT),
    ("/v1/messages", {"messages": SAID, "max_tokens": 5}, EVENT),
)


class Slow:
    """Says where a request waits, and answers when it is told to."""

    def __init__(self) -> None:
        self.speaks = threading.Event()
        self.fails = False

    def daemon(self) -> ScriptedDaemon:
        return ScriptedDaemon({}, {"/moe.v1.Inference/ChatStream": self.stream})

    def stream(self, _: bytes, context: Any) -> Iterator[bytes]:
        context.send_initial_metadata((("moe-queue-position", "7"),))
        self.speaks.wait(CALL_SECONDS)
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

    def test_what_fails_before_has_a_status(self) -> None:
        self.daemon.fails = True
        self.addCleanup(setattr, self.daemon, "fails", False)
        self.daemon.speaks.set()
        self.assertEqual(self.front.post("/v1/chat/completions", {"model": "m", "stream": True, "messages": SAID})[0], 503)


if __name__ == "__main__":
    main()
