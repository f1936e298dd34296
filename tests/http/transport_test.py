"""What moed-http does with bytes that no client library sends: slow, endless, ambiguous, malformed. No daemon is needed."""

import contextlib
import functools
import json
import signal
import socket
from collections.abc import Iterator

from tests.http.front import Front, front_of_nobody
from tests.real_programs import RealProgramsTest, main
from tests.tokens import write_tokens
from tools.server_process import wait_until

KIB, MIB = 1 << 10, 1 << 20
WAIT_SECONDS = 300
JSON_POST = b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
GET = b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n"


class Peer:
    """A connection that sends whatever it likes."""

    def __init__(self, front: Front, receive_bytes: int | None = None):
        self.socket = socket.socket()
        if receive_bytes is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        self.socket.settimeout(WAIT_SECONDS)
        self.socket.connect(("127.0.0.1", front.port))
        self._unread = b""

    def send(self, data: bytes) -> None:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # the answer may be there already
            self.socket.sendall(data)

    def head(self) -> tuple[int, dict[str, str]]:
        """Status and headers of the next answer; 0 where the connection ended without one."""
        while b"\r\n\r\n" not in self._unread:
            if not self._receive():
                return 0, {}
        head, _, self._unread = self._unread.partition(b"\r\n\r\n")
        first, *lines = head.decode().split("\r\n")
        return int(first.split(" ")[1]), dict(line.split(": ", 1) for line in lines)

    def answer(self) -> tuple[int, dict[str, str], bytes]:
        """Likewise, and its body."""
        status, headers = self.head()
        length = int(headers.get("content-length", 0))
        while len(self._unread) < length and self._receive():
            pass
        body, self._unread = self._unread[:length], self._unread[length:]
        return status, headers, body

    def ended(self) -> bool:
        """Whether nothing comes any more; waits for it."""
        return not self._unread and not self._receive()

    def _receive(self) -> bool:
        try:
            data = self.socket.recv(65536)
        except ConnectionResetError:
            return False
        self._unread += data
        return bool(data)


def typed_post(content_type: bytes) -> bytes:
    head = b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-type: %s\r\ncontent-length: 29\r\n\r\n"
    return head % content_type + b'{"model": "m", "prompt": "x"}'


def error_of(body: bytes) -> str:
    return str(json.loads(body)["error"]["message"])


def chunked(*chunks: bytes) -> bytes:
    return b"".join(b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in (*chunks, b""))


class TransportTest(RealProgramsTest):
    @contextlib.contextmanager
    def front(self, *flags: object) -> Iterator[Front]:
        """In front of nobody: requests that come through are answered with 503."""
        with front_of_nobody(self.binaries, *flags) as front:
            yield front

    @contextlib.contextmanager
    def peer(self, front: Front, receive_bytes: int | None = None) -> Iterator[Peer]:
        peer = Peer(front, receive_bytes)
        with contextlib.closing(peer.socket):
            yield peer

    def status_of(self, front: Front, data: bytes) -> tuple[int, str]:
        """Of the first answer on a new connection, with the error's message."""
        with self.peer(front) as peer:
            peer.send(data)
            status, headers, body = peer.answer()
            is_error = headers.get("content-type") == "application/json" and b'"error"' in body
            return status, error_of(body) if is_error else ""

    # Requests as bytes

    def test_paths_methods_and_types(self) -> None:
        cases = [
            (GET, 200),
            (b"GET /readyz HTTP/1.1\r\nhost: x\r\n\r\n", 503),
            (b"GET /v1/models HTTP/1.1\r\nhost: x\r\n\r\n", 503),
            (b"GET /v1/models/one HTTP/1.1\r\nhost: x\r\n\r\n", 503),
            (b"GET /v1/models/ HTTP/1.1\r\nhost: x\r\n\r\n", 503),
            (b"GET //v1/models HTTP/1.1\r\nhost: x\r\n\r\n", 503),
            (b"GET /v1//models HTTP/1.1\r\nhost: x\r\n\r\n", 404),
            (b"GET /nowhere?prompt=secret HTTP/1.1\r\nhost: x\r\n\r\n", 404),
            (b"GET /v1/completions HTTP/1.1\r\nhost: x\r\n\r\n", 405),
            (b"GET http://x/healthz?a HTTP/1.1\r\nhost: x\r\n\r\n", 200),
            (b"GET HTTPS://x HTTP/1.1\r\nhost: x\r\n\r\n", 200),
            (b"\r\n" + GET, 200),
            (b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-type: text/plain\r\ncontent-length: 2\r\n\r\n{}", 415),
            (b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\n{}", 415),
            (JSON_POST + b"content-encoding: Identity\r\ncontent-length: 2\r\n\r\n{}", 400),
            (JSON_POST + b"content-encoding: identity, gzip\r\ncontent-length: 2\r\n\r\n{}", 415),
            (JSON_POST + b"content-encoding: gzip\r\ncontent-length: 2\r\n\r\n{}", 415),
            (typed_post(b"Application/JSON"), 503),
            (typed_post(b"application/json ; charset=utf-8"), 503),
            (typed_post(b"application/json;charset=utf-8"), 503),
            (typed_post(b"application/jsonp"), 415),
            (typed_post(b"text/plain; application/json"), 415),
            (JSON_POST + b'content-length: 29\r\n\r\n{"model": "m", "prompt": "x"}', 503),
            (JSON_POST + b"transfer-encoding: chunked\r\n\r\n" + chunked(b'{"model": "m",', b'"prompt": "x"}'), 503),
        ]
        with self.front() as front:
            for data, expected in cases:
                with self.subTest(data):
                    self.assertEqual(self.status_of(front, data)[0], expected)
            self.assertNotIn("secret", front.log())

    def test_ambiguous_and_malformed_requests_are_refused(self) -> None:
        cases = [
            (b"GET /healthz HTTP/1.1\nhost: x\n\n", 400),
            (b"GET /healthz HTTP/1.1\r\nhost: x\nx: y\r\n\r\n", 400),
            (b"GET /healthz HTTP/1.1\r\nhost : x\r\n\r\n", 400),
            (b"GET /healthz HTTP/1.1\r\nho\0st: x\r\n\r\n", 400),
            (b"GET /healthz HTTP/1.1\r\n\r\n", 400),
            (b"GET /healthz HTTP/1.1\r\nhost: x\r\nhost: y\r\n\r\n", 400),
            (b"GET ftp://x/healthz HTTP/1.1\r\nhost: x\r\n\r\n", 400),
            (b"GET http:///healthz HTTP/1.1\r\nhost: x\r\n\r\n", 400),
            (b"OPTIONS * HTTP/1.1\r\nhost: x\r\n\r\n", 400),
            (b"GET /healthz HTTP/3.0\r\nhost: x\r\n\r\n", 400),
            (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400),
            (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 TLS\r\n\r\n", 400),
            (JSON_POST + b"content-length: 2\r\ntransfer-encoding: chunked\r\n\r\n{}", 400),
            (JSON_POST + b"transfer-encoding: chunked\r\ncontent-length: 2\r\n\r\n{}", 400),
            (JSON_POST + b"content-length: 2\r\ncontent-length: 3\r\n\r\n{}", 400),
            (JSON_POST + b"content-length: -2\r\n\r\n{}", 400),
            (JSON_POST + b"content-length: 99999999999999999999999\r\n\r\n{}", 400),
            (JSON_POST + b"transfer-encoding: gzip\r\n\r\n{}", 501),
            (JSON_POST + b"transfer-encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n", 400),
            (b"GET /healthz HTTP/1.1\r\nhost: x\r\nfilling: " + b"x" * (20 * KIB) + b"\r\n\r\n", 431),
            (b"GET /healthz HTTP/1.1\r\nhost: x\r\n" + b"filling: x\r\n" * 2000 + b"\r\n", 431),
            (b"GET /healthz?" + b"x" * (3 * KIB) + b" HTTP/1.1\r\nhost: x\r\n\r\n", 414),
            (b"GET /" + b"x" * (40 * KIB), 431),
        ]
        with self.front() as front:
            for data, expected in cases:
                with self.subTest(data[:100]), self.peer(front) as peer:
                    peer.send(data)
                    status, headers, body = peer.answer()
                    self.assertEqual(status, expected, body)
                    self.assertTrue(error_of(body))
                    if expected in (400, 431, 501):
                        self.assertEqual(headers["connection"], "close")
                        self.assertTrue(peer.ended())
            self.assertEqual(self.status_of(front, GET)[0], 200)

    def test_what_is_no_json_is_refused(self) -> None:
        cases = [
            (b"", "byte"),
            (b"{", "byte"),
            (b'{"prompt": "x"} x', "byte"),
            (b'{"prompt": "\xff"}', "byte"),
            (b'{"prompt": "\\ud800"}', "byte"),
            (b'{"prompt": "\x01"}', "byte"),
            (b'{"temperature": 1e999}', "out of range"),
            (b'{"temperature": NaN}', "byte"),
            (b"[" * 300_000, "64 arrays"),
            (b'{"a":' * 300_000, "64 arrays"),
            (b"[" + b"[]," * 600_000 + b"0]", "MiB of memory"),
            (b"[" + b'"",' * 600_000 + b"0]", "MiB of memory"),
            (b"{" + b",".join(b'"%d":0' % i for i in range(100_000)) + b"}", "2048 members"),
            (b'{"prompt": "x", "prompt": "y"}', "twice"),
            (b"[]", "JSON object"),
            (b'"x"', "JSON object"),
            (b'{"what\\u0000ever": 1}', "unknown parameter"),
        ]
        with self.front() as front:
            for body, words in cases:
                with self.subTest(body[:40]):
                    status, message = self.status_of(front, JSON_POST + b"content-length: %d\r\n\r\n%s" % (len(body), body))
                    self.assertEqual(status, 400)
                    self.assertIn(words, message)

    def test_bodies_are_limited_before_they_are_read(self) -> None:
        with self.front("--max-body", "64KiB") as front:
            with self.peer(front) as peer:
                peer.send(JSON_POST + b"content-length: 65537\r\n\r\n")
                self.assertEqual(peer.answer()[0], 413)
            with self.peer(front) as peer:
                peer.send(JSON_POST + b"transfer-encoding: chunked\r\n\r\n" + b"1000\r\n%s\r\n" % (b" " * 4096) * 17)
                self.assertEqual(peer.answer()[0], 413)
            with self.peer(front) as peer:  # chunks of a byte each
                peer.send(JSON_POST + b"transfer-encoding: chunked\r\n\r\n" + b"1\r\n \r\n" * 60_000)
                self.assertEqual(peer.answer()[0], 413)
            with self.peer(front) as peer:
                peer.send(JSON_POST + b"expect: 100-continue\r\ncontent-length: 65537\r\n\r\n")
                self.assertEqual(peer.answer()[0], 413)
            with self.peer(front) as peer:
                peer.send(JSON_POST + b"expect: 100-continue\r\ncontent-length: 2\r\n\r\n")
                self.assertEqual(peer.answer()[0], 100)
                peer.send(b"{}")
                self.assertEqual(peer.answer()[0], 400)

    def test_chunks_bring_little_but_the_body(self) -> None:
        head = JSON_POST + b"transfer-encoding: chunked\r\n\r\n"
        with self.front() as front:
            for begun in (b"2;x=", b"0\r\nx: "):
                with self.subTest(begun):
                    status, message = self.status_of(front, head + begun + b"x" * (64 * KIB))
                    self.assertEqual((status, "extension" in message), (400, True))
            whole = b"2;x=%s\r\n{}\r\n0\r\nx: %s\r\n\r\n" % (b"x" * (8 * KIB), b"x" * (8 * KIB))
            self.assertIn("missing", self.status_of(front, head + whole)[1], "the body was read")

    def test_only_who_may_ask_brings_a_body(self) -> None:
        tokens = write_tokens(self.folder / "tokens", ("someone", "infer", "a-key-of-sixteen-letters"))
        sized, chunked_too = b"content-length: %d\r\n\r\n" % (4 * MIB), b"transfer-encoding: chunked\r\n\r\n"
        cases = [
            (b"GET /healthz HTTP/1.1\r\nhost: x\r\n" + sized, 400),
            (b"GET /healthz HTTP/1.1\r\nhost: x\r\n" + chunked_too, 400),
            (b"GET / HTTP/1.1\r\nhost: x\r\n" + sized, 400),
            (b"HEAD /v2/health/live HTTP/1.1\r\nhost: x\r\n" + sized, 400),
            (b"POST /healthz HTTP/1.1\r\nhost: x\r\n" + sized, 405),
            (JSON_POST + sized, 401),
            (JSON_POST + chunked_too, 401),
            (JSON_POST + b"authorization: Bearer another-key-of-letters\r\n" + sized, 401),
            (b"GET /healthz HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n", 200),
        ]
        with self.front("--tokens", tokens) as front:
            for head, expected in cases:
                with self.subTest(head), self.peer(front) as peer:
                    peer.send(head)  # and nothing of the body
                    self.assertEqual(peer.head()[0], expected)

    # Connections

    def test_requests_follow_each_other(self) -> None:
        with self.front() as front, self.peer(front) as peer:
            ids = set()
            for _ in range(3):
                peer.send(GET)
                status, headers, body = peer.answer()
                self.assertEqual((status, headers["connection"], body), (200, "keep-alive", b"ok\n"))
                ids.add(headers["x-request-id"])
            peer.send(GET * 50 + b"GET /nowhere HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n" + GET)
            self.assertEqual([peer.answer()[0] for _ in range(51)], [200] * 50 + [404])
            self.assertTrue(peer.ended())
            self.assertEqual(len(ids), 3)

    def test_head_is_answered_as_get_without_a_body(self) -> None:
        with self.front() as front, self.peer(front) as peer:
            for path, expected in (
                (b"/healthz", 200),
                (b"/health", 200),
                (b"/readyz", 503),
                (b"/nowhere", 404),
                (b"/", 200),
                (b"/v1/models", 503),
            ):
                request = path + b" HTTP/1.1\r\nhost: x\r\n\r\n"
                peer.send(b"GET " + request)
                status, of_get, body = peer.answer()
                self.assertEqual((status, int(of_get["content-length"])), (expected, len(body)))
                peer.send(b"HEAD " + request)
                status, of_head = peer.head()
                del of_get["x-request-id"], of_head["x-request-id"]
                self.assertEqual((status, of_head), (expected, of_get))
            peer.send(b"HEAD /v1/completions HTTP/1.1\r\nhost: x\r\n\r\n")
            status, headers = peer.head()
            self.assertEqual((status, headers["allow"]), (405, "POST"))
            peer.send(b"POST /v2/models/x HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\nDELETE /v2/models/x HTTP/1.1\r\n")
            self.assertEqual(peer.answer()[0], 404)
            peer.send(b"host: x\r\n\r\n")
            status, headers, _ = peer.answer()
            self.assertEqual((status, headers["allow"]), (405, "GET, HEAD, POST"))

    def test_the_older_protocol_is_answered_once(self) -> None:
        with self.front() as front, self.peer(front) as peer:
            peer.send(b"GET /healthz HTTP/1.0\r\n\r\n")
            status, headers, body = peer.answer()
            self.assertEqual((status, headers["connection"], body), (200, "close", b"ok\n"))
            self.assertTrue(peer.ended())

    def test_slow_clients_lose_their_connection(self) -> None:
        with self.front("--read-seconds", 1, "--idle-seconds", 1) as front:

            def outcome(data: bytes) -> int:
                """The answer's status; 0 where this program was so slow that the connection had ended before."""
                with self.peer(front) as peer:
                    peer.send(data)
                    status = peer.answer()[0]
                    self.assertTrue(peer.ended())
                    return status

            for data in (b"GET /hea", JSON_POST, JSON_POST + b"content-length: 100\r\n\r\n{"):
                with self.subTest(data):
                    self.assertEqual(wait_until(functools.partial(outcome, data), "an answer", WAIT_SECONDS), 408)
            with self.peer(front) as peer:
                self.assertTrue(peer.ended(), "nothing was asked")
            self.assertEqual(wait_until(lambda: outcome(GET), "an answer", WAIT_SECONDS), 200)

    def test_connections_are_limited(self) -> None:
        with self.front("--max-connections", 4) as front, contextlib.ExitStack() as closing:

            def busy_peer() -> Peer | None:
                """None while there is no room."""
                peer = closing.enter_context(self.peer(front))
                peer.send(JSON_POST + b"expect: 100-continue\r\ncontent-length: 2\r\n\r\n")
                return peer if peer.answer()[0] == 100 else None

            idle = closing.enter_context(self.peer(front))
            idle.send(GET)
            self.assertEqual(idle.answer()[0], 200)
            busy = [wait_until(busy_peer, "room", WAIT_SECONDS) for _ in range(3)]
            wait_until(lambda: self.status_of(front, GET)[0] == 200, "room that the idle one makes", WAIT_SECONDS)
            self.assertTrue(idle.ended())
            busy.append(wait_until(busy_peer, "room that the last one left", WAIT_SECONDS))
            self.assertIn(self.status_of(front, GET)[0], (0, 503), "all are busy")
            for peer in busy:
                peer.send(b"{}")
                self.assertEqual(peer.answer()[0], 400)

    def test_memory_is_bounded_and_others_are_served(self) -> None:
        flags = ("--max-bodies", "16MiB", "--read-seconds", 600)
        with self.front(*flags) as front, contextlib.ExitStack() as closing:
            self.assertEqual(self.status_of(front, GET)[0], 200)
            before = front.memory_bytes("VmRSS")
            for _ in range(64):  # half a body each, 128 MiB in all
                peer = closing.enter_context(self.peer(front))
                peer.send(JSON_POST + b"content-length: %d\r\n\r\n" % (4 * MIB) + b" " * (2 * MIB))
                self.assertEqual(self.status_of(front, GET)[0], 200)

            def refused() -> int:
                return sum(line["status"] == 503 for line in front.requests_logged())

            wait_until(lambda: refused() >= 64 - 8, "refusals beyond 16 MiB", WAIT_SECONDS)
            self.assertLess(front.memory_bytes("VmHWM"), before + 40 * MIB)

    # Ends

    def test_what_is_idle_does_not_hold_up_the_end(self) -> None:
        with self.front() as front, self.peer(front) as idle, self.peer(front) as half:
            idle.send(GET)
            self.assertEqual(idle.answer()[0], 200)
            half.send(b"GET /")
            front.send_signal(signal.SIGTERM)
            self.assertEqual(front.wait(WAIT_SECONDS), 0, front.log())
            self.assertTrue(idle.ended())

    def test_flags_are_checked(self) -> None:
        tokens = self.folder / "tokens"
        cases = [
            (("--listen", "here"), "an address is HOST:PORT"),
            (("--max-body", "1"), "1KiB"),
            (("--max-body", "8MiB", "--max-bodies", "4MiB"), "less than"),
            (("--max-connections", 0), "--max-connections"),
            (("--log-level", "loud"), "--log-level"),
            (("--model-name", ""), "--model-name: empty"),
            (("--what",), "--what"),
            (("--tokens", self.folder / "none"), "cannot read"),
            (("--tokens", tokens), "line 2"),
            (("--server-token-file", self.folder / "none"), "--server-token-file"),
        ]
        tokens.write_text("# tokens\nshort\n")
        for flags, words in cases:
            with self.subTest(flags):
                ended = self.run_program("moed-http", *flags)
                self.assertEqual(ended.returncode, 2)
                self.assertIn(words, ended.stderr)
        with self.front() as front:
            taken = self.run_program("moed-http", "--listen", front.address)
            self.assertEqual(taken.returncode, 1)
            self.assertIn("in use", taken.stderr)
        told = self.run_program("moed-http", "--help").stdout
        self.assertTrue("--tokens" in told and "SIGHUP reads certificates and tokens" in " ".join(told.split()), told)
        self.assertIn("moed-http 0.", self.run_program("moed-http", "--version").stdout)


if __name__ == "__main__":
    main()
