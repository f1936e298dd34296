"""What a message may be made of: text. Every other kind of part is refused by its place, with what it was and what is allowed."""

from typing import Any, ClassVar

from tests.http.front import Front, front_of_nobody
from tests.real_programs import RealProgramsTest, main

URL = "data:image/png;base64,aGVsbG8="
SOURCE = {"type": "base64", "media_type": "image/png", "data": "aGVsbG8="}
OPENAI_PARTS: tuple[dict[str, Any], ...] = (
    {"type": "image_url", "image_url": {"url": URL, "detail": "low"}},
    {"image_url": {"url": URL}, "type": "image_url"},
    {"type": "input_image", "image_url": URL},
    {"type": "input_audio", "input_audio": {"data": "aGVsbG8=", "format": "wav"}},
    {"type": "video_url", "video_url": {"url": URL}},
    {"type": "file", "file": {"file_id": "f"}},
)
ANTHROPIC_BLOCKS: tuple[dict[str, Any], ...] = (
    {"type": "image", "source": SOURCE},
    {"source": {"type": "url", "url": URL}, "type": "image"},
    {"type": "document", "source": {**SOURCE, "media_type": "application/pdf"}, "title": "t"},
    {"type": "search_result", "source": "s", "title": "t", "content": []},
    {"type": "container_upload", "file_id": "f"},
)


class PartsTest(RealProgramsTest):
    front: ClassVar[Front]

    @classmethod
    def setUpClass(cls) -> None:
        """In front of nobody: what would be understood gets 503."""
        super().setUpClass()
        cls.front = cls.enterClassContext(front_of_nobody(cls.binaries))

    def refused(self, path: str, place: str, part: Any, **body: Any) -> None:
        with self.subTest(path, place=place, part=part):
            status, answer = self.front.post(path, {"model": "m", **body})
            error = answer["error"]
            self.assertEqual((status, error["type"]), (400, "invalid_request_error"), answer)
            self.assertEqual(error.get("param", place), place)
            self.assertTrue(error["message"].startswith(f'{place}: "{part["type"]}" is not understood'), error)
            self.assertRegex(error["message"], r"; .*\btext\b")
            self.assertNotIn("aGVsbG8", error["message"])

    def test_openai(self) -> None:
        text: dict[str, Any] = {"type": "text", "text": "What is this?"}
        for role in ("system", "user", "assistant", "tool"):
            for part in OPENAI_PARTS:
                messages = [{"role": role, "content": [text, part]}]
                self.refused("/v1/chat/completions", "messages[0].content[1].type", part, messages=messages)
        wrong: tuple[tuple[Any, str], ...] = (
            ({"text": "x"}, "[0].type: missing"),
            ({"type": "text"}, "[0].text: missing"),
            ("x", "is no object"),
        )
        for content, words in wrong:
            said = {"role": "user", "content": [content]}
            status, answer = self.front.post("/v1/chat/completions", {"model": "m", "messages": [said]})
            self.assertEqual(status, 400)
            self.assertIn(words, answer["error"]["message"])
        body = {"model": "m", "messages": [{"role": "user", "content": [text]}]}
        self.assertEqual(self.front.post("/v1/chat/completions", body)[0], 503)

    def test_anthropic(self) -> None:
        text = {"type": "text", "text": "What is this?"}
        for path in ("/v1/messages", "/v1/messages/count_tokens"):
            more: dict[str, Any] = {"max_tokens": 5} if path == "/v1/messages" else {}
            for part in ANTHROPIC_BLOCKS:
                for role in ("user", "assistant"):
                    messages = [{"role": role, "content": [text, part]}]
                    self.refused(path, "messages[0].content[1].type", part, messages=messages, **more)
                result = {"type": "tool_result", "tool_use_id": "t", "content": [text, part]}
                told = [{"role": "user", "content": [result]}]
                self.refused(path, "messages[0].content[0].content[1].type", part, messages=told, **more)
                asked = [{"role": "user", "content": "x"}]
                self.refused(path, "system[0].type", part, messages=asked, system=[part], **more)
            body = {"model": "m", "messages": [{"role": "user", "content": [text]}], **more}
            self.assertEqual(self.front.post(path, body)[0], 503)


if __name__ == "__main__":
    main()
