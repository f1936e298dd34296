"""`moectl chat` as people use it, on a terminal, and as scripts do, line by line."""

import contextlib
import json
import pathlib
import subprocess
from collections.abc import Iterator
from typing import ClassVar

from tests.real_programs import CALL_SECONDS, RealProgramsTest, main
from tests.terminal import CTRL_C, CTRL_D, Terminal
from tools.daemon import Daemon, pack_demo, running

STATUS = "tokens/s"  # in the line after an answer


class ChatCommandTest(RealProgramsTest):
    daemon: ClassVar[Daemon]
    store: ClassVar[pathlib.Path]

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        store = pack_demo(cls.binaries, cls.folder, "q4", "q8")
        cls.store = store
        cls.daemon = cls.enterClassContext(running(cls.binaries, "--store", store, "--memory-budget", "64MiB"))

    def command(self, *arguments: object, daemon: Daemon | None = None) -> list[object]:
        address = (daemon or self.daemon).address
        return [self.binaries / "moectl", "--server", address, "chat", "--temperature", 0, *arguments]

    @contextlib.contextmanager
    def terminal(self, *arguments: object, daemon: Daemon | None = None) -> Iterator[Terminal]:
        terminal = Terminal(*self.command(*arguments, daemon=daemon))
        try:
            terminal.wait_for("> ")
            yield terminal
        finally:
            terminal.close()

    def saved(self, terminal: Terminal) -> list[dict[str, str]]:
        path = self.folder / "talk.json"
        terminal.type(f"/save {path}\n".encode())
        terminal.wait_for(" messages\r\n> ")
        messages: list[dict[str, str]] = json.loads(path.read_text())["messages"]
        return messages

    def answer_lines(self, text: str, *arguments: object) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            list(map(str, self.command(*arguments))), input=text, capture_output=True, text=True, timeout=CALL_SECONDS
        )

    def test_each_line_of_a_pipe_is_a_message_of_one_conversation(self) -> None:
        two = self.answer_lines("Once upon a time\n\nAnd then\n", "--max-new-tokens", 8, "--ignore-eos")
        self.assertEqual(two.returncode, 0, two.stderr)
        self.assertEqual(two.stderr.count("8 new tokens"), 2)
        first = self.answer_lines("Once upon a time\n", "--max-new-tokens", 8, "--ignore-eos")
        self.assertTrue(two.stdout.startswith(first.stdout))
        self.assertGreater(len(two.stdout), len(first.stdout))

    def test_one_message_may_have_several_lines_and_is_answered_alone(self) -> None:
        text = "Once upon a time\nthere was"
        (self.folder / "message.txt").write_text(text)
        run = self.answer_lines("not read", "--max-new-tokens", 8, "--ignore-eos", "--prompt-file", self.folder / "message.txt")
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertEqual(run.stderr.count("8 new tokens"), 1)
        self.assertEqual(run.stdout, self.answer_lines("", "--max-new-tokens", 8, "--ignore-eos", "--prompt", text).stdout)

    def test_plain_continues_the_text_itself(self) -> None:
        plain = self.answer_lines("Once upon a time\n", "--plain", "--max-new-tokens", 8)
        self.assertEqual(plain.returncode, 0, plain.stderr)
        same = ("generate", "--prompt", "Once upon a time", "--max-new-tokens", 8, "--temperature", 0)
        self.assertEqual(plain.stdout, self.daemon.moectl(*same).stdout)
        refused = self.answer_lines("x\n", "--plain", "--system", "Be kind.")
        self.assertEqual(refused.returncode, 2)
        self.assertIn("--system", refused.stderr)

    def test_an_answer_has_the_format_that_is_asked_for(self) -> None:
        schema = self.folder / "schema.json"
        schema.write_text('{"enum": ["yes"]}')
        for flags, pattern in (
            (("--regex", "[0-9]{3}"), r"[0-9]{3}\n"),
            (("--json-schema", schema), r'"yes"\n'),
            (("--json-object",), r"\s*\{(?s:.*)\n"),
        ):
            for way in ((), ("--plain",)):
                with self.subTest(flags=flags, way=way):
                    run = self.answer_lines("hi\n", *flags, *way, "--max-new-tokens", 12)
                    self.assertEqual(run.returncode, 0, run.stderr)
                    self.assertRegex(run.stdout, rf"\A{pattern}\Z")

    def test_a_session_keeps_what_was_computed(self) -> None:
        run = self.answer_lines("Once upon a time\nAnd then\n", "--max-new-tokens", 8, "--session", "kept")
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertIn("kept", self.daemon.moectl("session", "list").stdout)
        self.daemon.moectl("session", "delete", "kept")

    def test_a_conversation_is_saved_and_taken_up(self) -> None:
        with self.terminal("--max-new-tokens", 8, "--system", "Be kind.") as terminal:
            terminal.type(b"Once upon \\\n")
            terminal.wait_for(". ")
            terminal.type(b"a time\n")
            terminal.wait_for(STATUS)
            saved = self.saved(terminal)
            self.assertEqual([message["role"] for message in saved], ["system", "user", "assistant"])
            self.assertEqual(saved[1]["content"], "Once upon \na time")
            terminal.type(b"/reset\n")
            self.assertEqual([message["role"] for message in self.saved(terminal)], ["system"])
            terminal.type(b"/nonsense\n")
            terminal.wait_for("/quit")
            terminal.type(b"/quit\n")
            self.assertEqual(terminal.exit_code(), 0)
        path = self.folder / "conversation.json"
        path.write_text(json.dumps({"messages": saved}))
        with self.terminal("--max-new-tokens", 8, "--conversation", path) as terminal:
            self.assertEqual(self.saved(terminal), saved)
            terminal.type(CTRL_D)
            self.assertEqual(terminal.exit_code(), 0)

    def test_ctrl_c_stops_the_answer_and_not_the_program(self) -> None:
        with self.terminal("--ignore-eos") as terminal:
            terminal.type(b"Once upon a time\n")
            terminal.wait_for("\n")
            terminal.wait_for(" ")  # of the answer
            terminal.type(CTRL_C)
            terminal.wait_for("> ")
            saved = self.saved(terminal)
            self.assertEqual([message["role"] for message in saved], ["user", "assistant"])
            self.assertNotEqual(saved[1]["content"], "")
            terminal.type(CTRL_C)
            terminal.wait_for("Ctrl-D ends")
            terminal.type(CTRL_D)
            self.assertEqual(terminal.exit_code(), 0)

    def test_a_conversation_that_fills_the_context_says_what_helps(self) -> None:
        flags = ("--store", self.store, "--memory-budget", "16MiB", "--max-context", 128)
        with running(self.binaries, *flags) as daemon, self.terminal("--ignore-eos", daemon=daemon) as terminal:
            for line, before in ((b"Once upon a time\n", "[context]"), (b"And then\n", "")):
                terminal.type(line)
                shown = terminal.wait_for("the conversation is full: /reset")
                self.assertIn(before, shown)
                self.assertNotIn("INVALID_ARGUMENT", shown)
                self.assertIn("--max-context", terminal.wait_for("> "))
            terminal.type(b"/reset\n")
            terminal.wait_for("> ")
            terminal.type(b"Once upon a time\n")
            self.assertNotIn("full", terminal.wait_for(STATUS))
            terminal.type(CTRL_D)
            self.assertEqual(terminal.exit_code(), 0)

    def test_a_refused_message_leaves_the_conversation_as_it_was(self) -> None:
        with self.terminal("--top-p", 7) as terminal:
            terminal.type(b"Once upon a time\n")
            terminal.wait_for("top_p")
            self.assertEqual(self.saved(terminal), [])

    def test_files_that_are_no_conversations_are_refused(self) -> None:
        path = self.folder / "wrong.json"
        good = {"role": "user", "content": "x"}
        for wrong, word in (
            ("", "expected"),
            ("[1]", "expected"),
            ('{"messages": {}}', "expected"),
            (json.dumps({"messages": [good, 7]}), "messages[1]"),
            (json.dumps({"messages": [{"role": "user", "content": ["x"]}]}), "content is array"),
            (json.dumps({"messages": [{**good, "tool_calls": "x"}]}), "tool_calls"),
            (json.dumps({"messages": [{"content": "x"}]}), "no role"),
            ("[" * 100_000, "expected"),
        ):
            with self.subTest(wrong[:40]):
                path.write_text(wrong)
                run = self.answer_lines("Once\n", "--conversation", path)
                self.assertNotEqual(run.returncode, 0)
                self.assertIn(word, run.stderr)
        missing = self.answer_lines("Once\n", "--conversation", pathlib.Path("/nonexistent"))
        self.assertIn("/nonexistent", missing.stderr)


if __name__ == "__main__":
    main()
