"""The page of moed-http: its files, and what headless Chromium makes of them. --screenshot FILE keeps a picture."""

import argparse
import contextlib
import http.client
import json
import pathlib
import sys
import threading
import unittest
from collections.abc import Iterator
from typing import Any, ClassVar

import grpc

from tests.http.browser import Browser, browser, installed
from tests.http.front import CALL_SECONDS, Front, front_of, front_of_nobody
from tests.http.scripted_daemon import ScriptedDaemon, ScriptedDaemonTest, until_cancelled
from tests.http.served import ServedTest
from tests.real_programs import RealProgramsTest
from tests.tokens import write_tokens
from tools.daemon import DEFAULT_BINARIES
from tools.server_process import wait_until

pb: Any = None  # made from proto/ when the tests begin
KEY = "a-key-of-sixteen-characters"
QUESTION = "Tell me of a little fox."
MARKUP = "<img src=x onerror=alert(1)><script>alert(2)</script> & <b>bold</b>"
ANSWERED = "!document.querySelector('[aria-busy]') && document.querySelector('.answer .note')"
MAP, CANVAS = (f"(await import('/page/page.js')).{name}" for name in ("map", "canvas"))
COLUMNS = ("resident", "hits", "misses", "lowered", "skipped", "reads", "on_device")

screenshot: pathlib.Path | None = None


def all_text(selector: str) -> str:
    return f"Array.from(document.querySelectorAll({json.dumps(selector)}), (each) => each.textContent)"


class FilesTest(RealProgramsTest):
    """No browser and no daemon are needed."""

    @contextlib.contextmanager
    def front(self, *flags: object) -> Iterator[Front]:
        with front_of_nobody(self.binaries, *flags) as front:
            yield front

    @staticmethod
    def get(front: Front, path: str, headers: dict[str, str] | None = None) -> tuple[int, Any, bytes]:
        with contextlib.closing(http.client.HTTPConnection(front.address, timeout=CALL_SECONDS)) as connection:
            connection.request("GET", path, headers=headers or {})
            with connection.getresponse() as answer:
                return answer.status, answer.headers, answer.read()

    def test_files_have_types_tags_and_a_policy(self) -> None:
        tokens = write_tokens(self.folder / "tokens", ("page", "infer,observe", KEY))
        types = {
            "/": "text/html",
            "/page/page.css": "text/css",
            "/page/page.js": "text/javascript",
            "/page/icon.svg": "image/svg",
        }
        with self.front("--tokens", tokens) as front:
            for path, media_type in types.items():
                status, headers, body = self.get(front, path)
                self.assertEqual(status, 200)
                self.assertTrue(headers["content-type"].startswith(media_type), path)
                self.assertIn("default-src 'none'", headers["content-security-policy"])
                self.assertNotIn("unsafe", headers["content-security-policy"])
                self.assertEqual(self.get(front, path, {"if-none-match": headers["etag"]})[0], 304)
                self.assertEqual(self.get(front, path, {"if-none-match": '"another"'})[2], body)
            self.assertEqual(self.get(front, "/page/other.js")[0], 404)
            self.assertEqual(self.get(front, "/v1/models")[0], 401)

    def test_it_can_be_turned_off(self) -> None:
        with self.front("--page", "off") as front:
            self.assertEqual([self.get(front, path)[0] for path in ("/", "/page/page.js", "/healthz")], [404, 404, 200])
        self.assertIn("--page", self.run_program("moed-http", "--page", "maybe").stderr)


@unittest.skipUnless(installed(), "no chromium-headless-shell: tools/packages.sh test installs it on Debian")
class BrowserTest(RealProgramsTest):
    browser: ClassVar[Browser]

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        global pb
        sys.path.insert(0, str(cls.generate_stubs()))
        from moe.v1 import control_pb2 as pb

        cls.browser = cls.enterClassContext(browser(cls.folder / "profile"))

    def open(self, front: Front) -> None:
        self.browser.open("about:blank")  # what the page before had under way ends here
        self.browser.requests.clear()
        self.browser.complaints.clear()
        self.browser.show(1280, 760)
        self.browser.open(f"http://{front.address}/")

    def expect_peace(self, front: Front) -> None:
        """Nothing was asked of anybody else, and nothing went wrong."""
        self.assertEqual({url.split("/")[2] for url in self.browser.requests}, {front.address})
        self.assertEqual(self.browser.complaints, [])

    def choose(self, **settings: object) -> None:
        self.browser.run("document.getElementById('settings').open = true")
        for name, value in settings.items():
            self.browser.type(f"#{name.replace('_', '-')}", str(value))

    def ask(self, question: str) -> None:
        self.browser.type("#prompt", question)
        self.browser.press("Enter")


class RealDaemonTest(BrowserTest, ServedTest):
    daemon_flags = ("--memory-budget", "14MiB")  # so little that experts are read again and again
    front_flags = ("--model-name", "tales")

    def open_ready(self) -> None:
        self.open(self.front)
        self.browser.wait("document.getElementById('model').value")
        self.browser.wait(f"{MAP}.cells")

    def expert_map(self) -> dict[str, list[int]]:
        """As GetExpertMap tells it, layer after layer."""
        with grpc.insecure_channel(self.daemon.address) as channel:
            call = channel.unary_unary("/moe.v1.Control/GetExpertMap", response_deserializer=pb.ExpertMap.FromString)
            layers = call(b"", timeout=CALL_SECONDS).layers
        return {column: [int(each) for layer in layers for each in getattr(layer, column)] for column in COLUMNS}

    def test_an_answer_is_the_apis_and_the_map_the_daemons(self) -> None:
        self.open_ready()
        self.choose(temperature=0, most_tokens=48)
        self.ask(QUESTION)
        self.browser.wait(ANSWERED)
        messages: list[Any] = [{"role": "user", "content": QUESTION}]
        body = {"model": "tales", "messages": messages, "temperature": 0, "max_tokens": 48}
        _, answer = self.front.post("/v1/chat/completions", body)
        self.assertEqual(self.browser.run(all_text(".answer .text")), [answer["choices"][0]["message"]["content"]])
        self.assertIn("48 tokens", self.browser.run(all_text(".note"))[0])

        # The next question goes on from what was said.
        self.ask("And then?")
        self.browser.wait(f"{ANSWERED} && document.querySelectorAll('.answer .note').length === 2")
        messages += [answer["choices"][0]["message"], {"role": "user", "content": "And then?"}]
        _, answer = self.front.post("/v1/chat/completions", body)
        self.assertEqual(self.browser.run(all_text(".answer .text"))[1], answer["choices"][0]["message"]["content"])

        lists = f"((map) => Object.fromEntries({list(COLUMNS)}.map((column) => [column, [...map[column]]])))({MAP})"
        wait_until(lambda: self.browser.run(lists) == self.expert_map(), "the map to be the daemon's", CALL_SECONDS)
        resident = self.browser.run(lists)["resident"]
        self.assertEqual(self.browser.run(f"{MAP}.residents"), sum(map(bool, resident)))
        seen = self.browser.run(f"{MAP}.seen")
        self.assertGreater(seen["hit"], 0)
        self.assertGreater(seen["missed"], 0)

        self.expect_peace(self.front)
        # Residents look different from others, once nothing shines any more.
        self.browser.wait(f"!{CANVAS}.shining.size")
        place = "((canvas, {x, y}) => [...canvas.context.getImageData(x, y, 1, 1).data])"
        colours = [self.browser.run(f"{place}({CANVAS}, {CANVAS}.placeOf({resident.index(formats)}))") for formats in (0, 1)]
        self.assertNotEqual(*colours)

    def test_a_stream_may_say_that_it_goes_on(self) -> None:
        self.open_ready()
        stream = ': ping\n\ndata: {"a": 1}\n\n: ping\n\ndata: [DONE]\n\n'
        heard = f"Array.fromAsync((await import('/page/events.js')).events(new Response({json.dumps(stream)})))"
        self.assertEqual(self.browser.run(f"await {heard}"), [{"a": 1}])

    def test_cells_can_be_walked_by_keys(self) -> None:
        self.open_ready()
        self.browser.run("document.getElementById('map').focus()")
        for key in ("ArrowRight", "ArrowRight", "ArrowDown"):
            self.browser.press(key)
        self.assertTrue(self.browser.run("document.getElementById('cell').textContent").startswith("Layer 1, expert 1: "))

    def test_a_phone_has_room_for_it(self) -> None:
        self.open_ready()
        self.browser.show(360, 640)
        self.browser.open(f"http://{self.front.address}/")
        self.assertTrue(self.browser.run("document.getElementById('experts').hidden"))
        self.browser.click("#show-experts")
        self.browser.wait(f"{MAP}.cells")
        self.assertLessEqual(self.browser.run("document.documentElement.scrollWidth"), 360)
        self.expect_peace(self.front)

    def test_a_key_is_asked_for_and_kept_in_the_tab(self) -> None:
        tokens = write_tokens(self.folder / "tokens", ("page", "infer,observe", KEY))
        with front_of(self.daemon, "--tokens", tokens) as front:
            self.open(front)
            self.browser.wait("document.getElementById('status').textContent.includes('a token is needed')")
            self.assertEqual(self.browser.run("document.activeElement.id"), "key")
            self.choose(key=KEY)
            self.browser.wait(f"document.getElementById('model').value && {MAP}.cells")
            self.assertEqual(self.browser.run("[Object.values(sessionStorage), localStorage.length]"), [[KEY], 0])
            self.ask(QUESTION)
            self.browser.wait(ANSWERED)
            self.assertEqual(self.browser.run(all_text(".refusal")), [])

    def test_a_refusal_is_shown_as_it_is(self) -> None:
        self.open_ready()
        self.choose(temperature=-1)
        self.ask(QUESTION)
        self.browser.wait("document.querySelector('.refusal')")
        body = {"model": "tales", "messages": [{"role": "user", "content": QUESTION}], "temperature": -1}
        _, answer = self.front.post("/v1/chat/completions", body)
        self.assertEqual(self.browser.run(all_text(".refusal")), [answer["error"]["message"]])
        self.browser.wait(f"document.getElementById('prompt').value === {json.dumps(QUESTION)}")

    def test_the_map_lights_up(self) -> None:
        self.open_ready()
        self.browser.show(1160, 680, prefers_reduced_motion="reduce")  # what happened last stays alight
        self.choose(temperature=0, most_tokens=26)
        self.browser.run("document.getElementById('settings').open = false")
        self.ask("Tom reads 12 pages a day. How many pages does he read in 5 days?")
        self.browser.wait(ANSWERED)
        self.browser.wait(f"{CANVAS}.shining.size && {MAP}.totals.mean_tpot_seconds")
        picture = self.browser.screenshot()
        self.assertTrue(picture.startswith(b"\x89PNG"))
        if screenshot:
            screenshot.write_bytes(picture)


class ScriptedTest(BrowserTest, ScriptedDaemonTest):
    answers: ClassVar[list[Any]] = []  # what the daemon says; then it waits for its client to go where `gone` is set
    gone: ClassVar[threading.Event | None] = None

    @classmethod
    def script(cls) -> ScriptedDaemon:
        return ScriptedDaemon({}, {"/moe.v1.Inference/ChatStream": cls.chat})

    @classmethod
    def chat(cls, _: bytes, context: Any) -> Iterator[bytes]:
        for answer in cls.answers:
            yield answer.SerializeToString()
        if cls.gone:
            until_cancelled(context)
            cls.gone.set()

    def say(self, *answers: Any, gone: threading.Event | None = None) -> None:
        type(self).answers, type(self).gone = list(answers), gone
        self.open(self.front)
        self.browser.wait("document.getElementById('model').value")

    def test_markup_stays_text_and_reasoning_is_apart(self) -> None:
        from moe.v1 import inference_pb2 as messages

        finish = messages.Finish(reason=messages.FINISH_REASON_STOP, usage=messages.Usage(prompt_tokens=3, completion_tokens=5))
        self.say(
            messages.ChatResponse(reasoning=MARKUP), messages.ChatResponse(text=MARKUP), messages.ChatResponse(finish=finish)
        )
        self.ask(MARKUP)
        self.browser.wait(ANSWERED)
        self.assertEqual(self.browser.run(all_text(".question")), [MARKUP])
        self.assertEqual(self.browser.run(all_text(".text")), [MARKUP, MARKUP])
        self.assertEqual(self.browser.run(all_text("#turns img, #turns script, #turns b")), [])
        self.assertFalse(self.browser.run("document.querySelector('.reasoning').open"))

    def test_stop_ends_the_request(self) -> None:
        from moe.v1 import inference_pb2 as messages

        gone = threading.Event()
        self.say(messages.ChatResponse(text="Without "), messages.ChatResponse(text="end"), gone=gone)
        self.ask(QUESTION)
        self.browser.wait("document.querySelector('.answer .text')?.textContent === 'Without end'")
        self.assertTrue(self.browser.run("document.getElementById('send').hidden"))
        self.browser.click("#stop")
        self.browser.wait(ANSWERED)
        self.assertIn("stopped", self.browser.run(all_text(".note"))[0])
        self.assertEqual(self.browser.run(all_text(".refusal")), [])
        self.assertTrue(gone.wait(CALL_SECONDS), "the daemon still answers")
        self.browser.click("#clear")
        self.assertEqual(self.browser.run(all_text(".turn")), [])

    def test_an_answer_that_breaks_off_says_so(self) -> None:
        from moe.v1 import inference_pb2 as messages

        self.say(messages.ChatResponse(text="Half"))
        self.ask(QUESTION)
        self.browser.wait("document.querySelector('.refusal')")
        self.assertIn("broke off", self.browser.run(all_text(".refusal"))[0])
        self.assertEqual(self.browser.run(all_text(".answer .text")), ["Half"])


def main() -> None:
    global screenshot
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--bin", type=pathlib.Path, default=DEFAULT_BINARIES)
    parser.add_argument("--screenshot", type=pathlib.Path)
    options, rest = parser.parse_known_args()
    RealProgramsTest.binaries, screenshot = options.bin, options.screenshot
    unittest.main(argv=[sys.argv[0], *rest])


if __name__ == "__main__":
    main()
