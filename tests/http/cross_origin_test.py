"""Pages of other sites that ask from a browser: what --allow-origin lets them."""

import contextlib
import http.client
import json
import sys
from collections.abc import Iterator
from typing import Any, ClassVar

from tests.http.front import Front
from tests.http.scripted_daemon import ScriptedDaemon, ScriptedDaemonTest
from tests.real_programs import main
from tests.tokens import write_tokens

SITE = "https://chat.example.com"
# As the libraries of OpenAI and Anthropic send them from a page.
SENT = "anthropic-dangerous-direct-browser-access,anthropic-version,authorization,content-type,x-api-key,x-stainless-os"
CHAT = "/v1/chat/completions"
BODY = json.dumps({"model": "scripted", "messages": [{"role": "user", "content": "x"}]}).encode()
STREAM = json.dumps({**json.loads(BODY), "stream": True}).encode()
JSON = {"content-type": "application/json"}


class CrossOriginTest(ScriptedDaemonTest):
    answer: ClassVar[bytes]

    @classmethod
    def script(cls) -> ScriptedDaemon:
        def stream(*_: Any) -> Iterator[bytes]:
            yield cls.answer

        return ScriptedDaemon({"/moe.v1.Inference/Chat": lambda *_: cls.answer}, {"/moe.v1.Inference/ChatStream": stream})

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        sys.path.insert(0, str(cls.generate_stubs()))
        from moe.v1 import inference_pb2 as pb

        cls.answer = pb.ChatResponse(text="x", finish=pb.Finish(reason=pb.FINISH_REASON_STOP)).SerializeToString()

    @contextlib.contextmanager
    def allowing(self, origins: str, *flags: object) -> Iterator[Front]:
        front = Front(self.binaries, self.daemon_address, "--model-name", "scripted", "--allow-origin", origins, *flags)
        with contextlib.closing(front):
            front.wait_until_ready()
            yield front

    def ask(
        self, front: Front, method: str, path: str, headers: dict[str, str], body: bytes | None = None
    ) -> tuple[int, http.client.HTTPMessage]:
        """Status and headers."""
        with contextlib.closing(front.connection()) as connection:
            connection.request(method, path, body, headers)
            with connection.getresponse() as answer:
                answer.read()
                return answer.status, answer.headers

    def preflight(self, front: Front, path: str, origin: str = SITE, names: str = SENT) -> tuple[int, http.client.HTTPMessage]:
        asked = {"access-control-request-method": "POST", "access-control-request-headers": names}
        return self.ask(front, "OPTIONS", path, {"origin": origin, **asked})

    def test_a_page_of_an_allowed_origin_is_given_leave(self) -> None:
        tokens = write_tokens(self.folder / "tokens", ("one", "infer", "sk-0123456789abcdef"))
        with self.allowing(f"http://localhost:5173,{SITE}", "--tokens", tokens) as front:
            for path, methods in ((CHAT, "POST"), ("/v1/models", "GET, HEAD"), ("/v1/messages", "POST")):
                status, headers = self.preflight(front, path)
                self.assertEqual((status, headers["access-control-allow-origin"], headers["vary"]), (200, SITE, "Origin"), path)
                self.assertEqual(
                    (headers["access-control-allow-methods"], headers["access-control-allow-headers"]), (methods, SENT)
                )
                self.assertEqual(headers["access-control-max-age"], "7200")

    def test_every_answer_may_be_read(self) -> None:
        with self.allowing(SITE, "--max-body", 1024) as front:
            for status, method, path, body in (
                (200, "POST", CHAT, BODY),
                (200, "POST", CHAT, STREAM),
                (200, "GET", "/healthz", None),
                (400, "POST", CHAT, b"{"),
                (404, "GET", "/v1/nothing", None),
                (405, "GET", CHAT, None),
                (413, "POST", CHAT, b"x" * 2000),
            ):
                with self.subTest(path, status=status):
                    told, headers = self.ask(front, method, path, {"origin": SITE, **JSON}, body)
                    self.assertEqual(told, status)
                    self.assertEqual(headers.get_all("access-control-allow-origin"), [SITE])
                    self.assertEqual(headers["access-control-expose-headers"], "*")

    def test_other_origins_are_allowed_nothing(self) -> None:
        with self.allowing(f"{SITE}:443,HTTP://LocalHost:80") as front:
            self.assertEqual(self.preflight(front, CHAT, "http://localhost")[0], 200, "browsers leave the default port out")
            for origin in ("https://example.com", f"{SITE}:8443", "http://chat.example.com", "null", f"{SITE}.evil.net"):
                status, headers = self.preflight(front, CHAT, origin)
                self.assertEqual((status, headers["access-control-allow-origin"], headers["vary"]), (405, None, "Origin"), origin)
                self.assertNotIn(
                    "access-control-allow-origin", self.ask(front, "POST", CHAT, {"origin": origin, **JSON}, BODY)[1]
                )
        status, headers = self.preflight(self.front, CHAT)
        self.assertEqual((status, headers["access-control-allow-origin"], headers["vary"]), (405, None, None))

    def test_all_origins_may_be_allowed(self) -> None:
        with self.allowing("*") as front:
            for origin in (SITE, "null"):
                self.assertEqual(self.preflight(front, CHAT, origin)[1]["access-control-allow-origin"], "*")

    def test_names_of_headers_that_are_none_are_not_repeated(self) -> None:
        with self.allowing(SITE) as front:
            status, headers = self.preflight(front, CHAT, names="x: <y>")
        self.assertEqual((status, headers["access-control-allow-headers"]), (200, None))

    def test_what_is_no_origin_is_named(self) -> None:
        for text in (
            "example.com", "https://", "https://*.example.com", f"{SITE}/", f"{SITE},", f"*,{SITE}", "null", "https://x:0",
            "https://x:65536", "https://x:y", "https://[::1", "https://user@x", "https://x y", "1s://x",
        ):  # fmt: skip
            with self.subTest(text):
                ended = self.run_program("moed-http", "--allow-origin", text)
                self.assertEqual(ended.returncode, 2)
                self.assertIn('--allow-origin: "', ended.stderr)
                self.assertIn("is no origin, which is SCHEME://HOST", ended.stderr)


if __name__ == "__main__":
    main()
