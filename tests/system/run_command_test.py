"""`moed run`: from a model's files to an answer or a conversation, and what is left when it is stopped."""

import contextlib
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator

from tests.memory_group import memory_group
from tests.real_programs import CALL_SECONDS, RealProgramsTest, main
from tests.terminal import CTRL_C, CTRL_D, Terminal
from tools.daemon import DEMO_CHECKPOINT, ROOT, pack
from tools.server_process import ServerProcess, free_port, wait_until

DEMO_BUDGET = "24MiB"
SLOW_PACK = ("--expert-formats", "q4a:hqq,q3:hqq,q2:hqq")


def apply_delta(delta: bytes, source: bytes) -> bytes:
    """A GGUF file of a tiny checkpoint (tools/parity/make_gguf.py says what a difference is made of)."""
    result, at, place = bytearray(), 8, 0

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while delta[at] >= 128:
            value, shift, at = value | (delta[at] & 127) << shift, shift + 7, at + 1
        at += 1
        return value | delta[at - 1] << shift

    while at < len(delta):
        count, kind = divmod(varint(), 4)
        if kind == 0:
            result += delta[at : at + count]
            at += count
            continue
        step = varint()
        place += step // 2 if step % 2 == 0 else -(step + 1) // 2
        taken = source[place : place + (count if kind == 1 else 2 * count)]
        place += len(taken)
        result += taken if kind == 1 else b"".join(bytes(2) + taken[i : i + 2] for i in range(0, len(taken), 2))
    return bytes(result)


@contextlib.contextmanager
def on_one_processor() -> Iterator[None]:
    """What is started here stays there."""
    all_of_them = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(all_of_them)})
    yield
    os.sched_setaffinity(0, all_of_them)


class RunCommandTest(RealProgramsTest):
    def setUp(self) -> None:
        self.home = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.cache = self.home / "cache"
        self.environment = {"MOED_CACHE_DIR": str(self.cache), "XDG_RUNTIME_DIR": str(self.home)}

    def tearDown(self) -> None:
        self.assertEqual(self.processes(), [])

    def processes(self) -> list[int]:
        """Of this test: they have its cache in their environment."""
        mark = f"MOED_CACHE_DIR={self.cache}".encode()
        found = []
        for process in pathlib.Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if mark in (process / "environ").read_bytes().split(b"\0"):
                    found.append(int(process.name))
        return found

    def daemon_of(self, parent: int) -> int:
        def is_it(process: int) -> bool:
            name, fields = pathlib.Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)
            return name.endswith("(moed") and int(fields.split()[1]) == parent

        (daemon,) = filter(is_it, self.processes())
        return daemon

    def stop(self, process: int) -> None:
        """Returns when none of its threads runs: a signal only asks."""

        def stopped(thread: pathlib.Path) -> bool:
            return (thread / "stat").read_text().rsplit(")", 1)[1].split()[0] == "T"

        os.kill(process, signal.SIGSTOP)
        wait_until(lambda: all(map(stopped, pathlib.Path(f"/proc/{process}/task").iterdir())), "a stop", CALL_SECONDS)

    def wait_until_none_is_left(self) -> None:
        wait_until(lambda: not self.processes(), "all programs to end", CALL_SECONDS)

    def start(self, *arguments: object) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [self.binaries / "moed", "run", *map(str, arguments)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **self.environment},
        )

    def run_model(self, *arguments: object, text: str | None = None) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [self.binaries / "moed", "run", *map(str, arguments)],
            input=text,
            capture_output=True,
            text=True,
            timeout=CALL_SECONDS,
            env={**os.environ, **self.environment},
        )

    def answer(self, model: pathlib.Path, *arguments: object) -> subprocess.CompletedProcess[str]:
        run = self.run_model(model, "--prompt", "Once upon a time", "--max-new-tokens", 8, "--temperature", 0, *arguments)
        self.assertEqual(run.returncode, 0, run.stderr)
        return run

    def demo_store(self) -> pathlib.Path:
        """Packed by moed-pack for all tests."""
        store = self.folder / "demo.moed"
        return store if store.exists() else pack(self.binaries, DEMO_CHECKPOINT, store)

    @property
    def tiny(self) -> pathlib.Path:
        """A checkpoint without a chat template."""
        return self.binaries.parent / "checkpoints" / "mixtral"

    def tiny_copy(self) -> pathlib.Path:
        copy = self.home / "tiny"
        shutil.copytree(self.tiny, copy, ignore=shutil.ignore_patterns("golden.json.xz", "*.delta"))
        return copy

    @contextlib.contextmanager
    def conversation(self) -> Iterator[Terminal]:
        terminal = Terminal(
            self.binaries / "moed", "run", self.demo_store(), "--memory", DEMO_BUDGET, environment=self.environment
        )
        try:
            terminal.wait_for("\n> ")
            yield terminal
        finally:
            terminal.close()

    def test_packs_once_and_answers(self) -> None:
        first = self.answer(DEMO_CHECKPOINT, "--memory", DEMO_BUDGET)
        self.assertIn("packing", first.stderr)
        self.assertIn("memory budget 24.0 MiB", first.stderr)
        self.assertGreater(len(first.stdout.split()), 3)
        second = self.answer(DEMO_CHECKPOINT)
        self.assertNotIn("packing", second.stderr)
        self.assertIn(" % of ", second.stderr)
        self.assertEqual(first.stdout, second.stdout)
        self.assertEqual([path.suffix for path in self.cache.glob("*[!k]")], [".moed"])  # but for the lock

    def test_what_the_environment_says_of_another_daemon_is_nothing_to_it(self) -> None:
        self.environment |= {"MOECTL_TLS_CA": "/of/another", "MOECTL_TLS_NAME": "another", "MOECTL_TOKEN_FILE": "/of/another"}
        self.environment["MOED_LISTEN"] = "0.0.0.0:1"
        self.environment |= {"https_proxy": "http://127.0.0.1:1", "http_proxy": "http://127.0.0.1:1"}
        self.answer(self.demo_store(), "--memory", DEMO_BUDGET)

    def test_standard_input_is_the_prompt(self) -> None:
        flags = (self.demo_store(), "--memory", DEMO_BUDGET, "--max-new-tokens", 8, "--temperature", 0)
        text = "Once upon a time\nthere was"
        piped = self.run_model(*flags, text=text + "\n")
        self.assertEqual(piped.returncode, 0, piped.stderr)
        self.assertEqual(piped.stdout, self.run_model(*flags, "--prompt", text).stdout)

    def test_an_endless_standard_input_is_refused(self) -> None:
        with open("/dev/zero", "rb") as zeros:
            run = subprocess.run(
                [self.binaries / "moed", "run", self.tiny],
                stdin=zeros,
                capture_output=True,
                text=True,
                timeout=CALL_SECONDS,
                env={**os.environ, **self.environment},
            )
        self.assertEqual(run.returncode, 2, run.stderr)
        self.assertIn("standard input", run.stderr)

    def test_without_a_chat_template_texts_are_continued(self) -> None:
        gguf = self.home / "tiny.gguf"
        gguf.write_bytes(
            apply_delta((self.tiny / "model.gguf.delta").read_bytes(), (self.tiny / "model.safetensors").read_bytes())
        )
        run = self.answer(gguf)
        self.assertIn("packing", run.stderr)
        self.assertIn("no chat template", run.stderr)
        store = pack(self.binaries, gguf, self.home / "tiny.moed")
        self.assertEqual(run.stdout, self.answer(store).stdout)

    def test_a_chat_template_may_be_given(self) -> None:
        template = self.home / "template.jinja"
        template.write_text("{% for message in messages %}{{ message.content }}{% endfor %}")
        run = self.answer(self.tiny, "--chat-template", template)
        self.assertNotIn("no chat template", run.stderr)
        template.write_text("{% for message in messages %}{{ message.role }}{% endfor %}")
        self.assertIn("packing", self.answer(self.tiny, "--chat-template", template).stderr)
        copy = self.tiny_copy()
        (copy / "chat_template.jinja").write_text(template.read_text())
        self.assertNotIn("no chat template", self.answer(copy).stderr)
        self.assertIn("no chat template", self.answer(copy, "--chat-template", "none").stderr)

    def test_what_has_changed_is_packed_anew(self) -> None:
        copy = self.tiny_copy()
        self.answer(copy)
        before = list(self.cache.glob("*.moed"))
        os.utime(copy / "model.safetensors", (1, 1))
        self.assertIn("packing", self.answer(copy).stderr)
        after = list(self.cache.glob("*.moed"))
        self.assertEqual([len(before), len(after)], [1, 1])
        self.assertNotEqual(before, after)
        (copy / "spiece.model").write_bytes(b"x")
        self.assertIn("packing", self.answer(copy).stderr)
        self.assertIn("packing", self.answer(copy, "--expert-formats", "q4").stderr)
        self.assertEqual(len(list(self.cache.glob("*.moed"))), 2)

    def test_a_damaged_store_in_the_cache_is_packed_anew(self) -> None:
        text = self.answer(self.tiny).stdout
        (store,) = self.cache.glob("*.moed")
        with open(store, "r+b") as file:
            file.write(bytes(100))
        run = self.answer(self.tiny)
        self.assertIn("packing", run.stderr)
        self.assertEqual(run.stdout, text)

    def test_two_at_a_time_pack_once(self) -> None:
        both = [self.start(self.tiny, "--prompt", "x", "--max-new-tokens", 4, "--temperature", 0) for _ in range(2)]
        outcomes = [run.communicate(timeout=CALL_SECONDS) for run in both]
        self.assertEqual([run.returncode for run in both], [0, 0], outcomes)
        self.assertEqual(sum("packing" in errors for _, errors in outcomes), 1)
        self.assertEqual(outcomes[0][0], outcomes[1][0])

    def test_a_stopped_pack_is_taken_up(self) -> None:
        flags = (DEMO_CHECKPOINT, "--memory", DEMO_BUDGET, "--prompt", "x", "--max-new-tokens", 1, *SLOW_PACK)
        for number, code in ((signal.SIGINT, 130), (signal.SIGKILL, -signal.SIGKILL)):
            with on_one_processor():
                run = self.start(*flags)
            wait_until(lambda: any(self.cache.glob("*.journal")), "the pack to begin", CALL_SECONDS)
            run.send_signal(number)
            _, errors = run.communicate(timeout=CALL_SECONDS)
            self.assertEqual(run.returncode, code, errors)
            self.wait_until_none_is_left()
            self.assertEqual(list(self.cache.glob("*.moed")), [])
        last = self.run_model(*flags)
        self.assertEqual(last.returncode, 0, last.stderr)
        self.assertIn("resuming", last.stderr)

    def test_models_that_are_none_are_refused(self) -> None:
        empty, ggufs = self.home / "empty", self.home / "ggufs"
        empty.mkdir()
        ggufs.mkdir()
        (ggufs / "a.gguf").write_bytes(b"GGUF")
        noise = self.home / "noise.gguf"
        noise.write_bytes(b"no model at all")
        for model, words in (
            (self.home / "missing.gguf", "No such file"),
            (empty, "config.json"),
            (ggufs, "a.gguf"),
            (noise, "neither a GGUF file"),
            (self.tiny / "model.safetensors", "the folder"),
            ("/dev/null", "neither a file nor a folder"),
        ):
            with self.subTest(model):
                run = self.run_model(model, "--prompt", "x")
                self.assertEqual(run.returncode, 2, run.stderr)
                self.assertIn(str(model), run.stderr)
                self.assertIn(words, run.stderr)
                self.assertEqual(run.stdout, "")
        self.assertFalse(self.cache.exists())
        broken = self.run_model(ggufs / "a.gguf", "--prompt", "x")
        self.assertEqual(broken.returncode, 1)
        self.assertIn("a.gguf", broken.stderr)

    def test_wrong_usage_is_told_before_anything_is_packed(self) -> None:
        for arguments, words in (
            ((), "MODEL"),
            ((self.tiny, "--nonsense"), "allowed are"),
            ((self.tiny, "--memory", "much"), "--memory"),
            ((self.tiny, "--prompt", ""), "prompt is empty"),
            ((self.tiny, "--prompt", "x", "--", "--nonsense"), "--nonsense"),
            ((self.tiny, "--prompt", "x", "--", "--store", "y"), "--store"),
            ((self.tiny, "--prompt", "x", "--", "--listen=unix:y"), "--listen"),
            ((self.tiny, "--prompt", "x", "--max-new-tokens", "-1"), "'-1' is no whole number from 1 to 2147483647"),
            ((self.tiny, "--prompt", "x", "--seed", "1.5"), "'1.5' is no whole number from 0 to 18446744073709551615"),
            ((self.tiny, "--prompt", "x", "--temperature", "inf"), "'inf' is no number from 0 to "),
            ((self.tiny, "--prompt", "x", "--chat-template", "/nonexistent.jinja"), "/nonexistent.jinja"),
            ((self.demo_store(), "--prompt", "x", "--expert-formats", "q4"), "packed already"),
            ((self.tiny, "--prompt", "x", "--expert-formats", "q99"), "q99"),
            ((self.tiny, "--prompt", "x", "--memory", "1000TiB"), "more than the"),
            ((self.tiny, "--prompt", "x", "--", "--kv-spill", str(self.home)), "--kv-spill-budget"),
            ((self.tiny, "--prompt", "x", "--", "--trace", "/nonexistent/trace"), "--trace: there is no folder /nonexistent"),
            ((self.tiny, "--prompt", "x", "--", "--preset-options", "hobbit-t3=1"), "hobbit-t3"),
            ((self.tiny, "--prompt", "x", "--", "--preset", "edgemoe"), "moed-plan widths"),
            ((self.tiny, "--prompt", "x", "--", "--preset", "hobbit"), "needs experts at 2 precisions: --expert-formats"),
            ((self.tiny, "--prompt", "x", "--expert-formats", "q8", "--", "--preset", "io-qexp"), "--expert-formats names them"),
            ((self.tiny, "--prompt", "x", "--", "--tokens", "t"), "--tokens after --: the daemon of moed run is this user's"),
        ):
            with self.subTest(words):
                run = self.run_model(*arguments, text="")
                self.assertEqual(run.returncode, 2, run.stderr)
                self.assertIn(words, run.stderr)
        self.assertEqual(list(self.cache.glob("*.moed")), [])

    def test_tokens_are_told_with_their_place_before_anything_is_packed(self) -> None:
        file = self.home / "moed.toml"
        file.write_text('tokens = "/of/another"\n')
        places = {
            "MOED_TOKENS": ("/of/another", "MOED_TOKENS: "),
            "MOED_CONFIG": (str(file), "tokens in the configuration file: "),
        }
        for variable, (value, words) in places.items():
            with self.subTest(variable):
                self.environment[variable] = value
                run = self.run_model(self.tiny, "--prompt", "x")
                self.assertEqual(run.returncode, 2, run.stderr)
                self.assertIn(words, run.stderr)
                del self.environment[variable]
        self.assertFalse(self.cache.exists())

    def test_a_budget_that_is_too_small_names_the_smallest(self) -> None:
        run = self.run_model(self.demo_store(), "--prompt", "x", "--memory", "1MiB")
        self.assertEqual(run.returncode, 2, run.stderr)
        self.assertIn("smallest", run.stderr)

    def test_it_stays_within_its_cgroups_limit(self) -> None:
        flags = ("run", self.demo_store(), "--prompt", "Once upon a time", "--max-new-tokens", 64, "--temperature", 0)
        outside = self.run_model(*flags[1:], "--memory", DEMO_BUDGET)
        with memory_group(160 << 20) as group:

            def run(*more: object) -> subprocess.CompletedProcess[str]:
                return subprocess.run(
                    group.command(self.binaries / "moed", *flags, *more),
                    capture_output=True,
                    text=True,
                    timeout=CALL_SECONDS,
                    env={**os.environ, **self.environment},
                )

            inside = run()
            self.assertEqual(inside.returncode, 0, inside.stderr)
            self.assertIn("98 % of the cgroup's limit of 160.0 MiB", inside.stderr)
            self.assertEqual(inside.stdout, outside.stdout)
            self.assertEqual(group.kills(), 0)
            refused = run("--memory", "128MiB")
            self.assertEqual(refused.returncode, 2, refused.stderr)
            self.assertIn("the cgroup's limit of 160.0 MiB", refused.stderr)

    def test_a_log_that_a_killed_one_left_goes(self) -> None:
        with self.conversation() as terminal:
            os.kill(terminal.pid, signal.SIGKILL)
            terminal.exit_code()
            self.wait_until_none_is_left()
        (left,) = self.cache.glob("run-*.log")
        of_the_user = self.cache / "run-away.log"
        of_the_user.write_text("kept")
        with self.conversation() as terminal:
            self.assertFalse(left.exists())
            (held,) = self.cache.glob(f"run-{terminal.pid}.log")
            self.answer(self.demo_store(), "--memory", DEMO_BUDGET)
            self.assertTrue(held.exists())
            terminal.type(CTRL_D)
            self.assertEqual(terminal.exit_code(), 0)
        self.assertEqual(list(self.cache.glob("run-*")), [of_the_user])

    def test_a_cache_that_cannot_be_written_is_named(self) -> None:
        (self.home / "file").write_text("")
        self.environment["MOED_CACHE_DIR"] = str(self.home / "file" / "cache")
        run = self.run_model(self.tiny, "--prompt", "x")
        self.assertEqual(run.returncode, 1)
        self.assertIn("MOED_CACHE_DIR", run.stderr)

    def test_flags_behind_two_dashes_are_the_daemons(self) -> None:
        run = self.run_model(self.demo_store(), "--prompt", "x", "--max-new-tokens", 100, "--", "--max-new-tokens", 64)
        self.assertEqual(run.returncode, 4, run.stderr)
        self.assertIn("100 is not in [1, 64], the server's --max-new-tokens", run.stderr)

    def test_a_conversation_opens_on_a_terminal(self) -> None:
        with self.conversation() as terminal:
            self.assertEqual(len(self.processes()), 3)
            terminal.type(b"Once upon a time\n")
            terminal.wait_for("tokens/s")
            terminal.wait_for("\n> ")
            terminal.type(CTRL_C)
            terminal.wait_for("Ctrl-D ends")
            terminal.type(CTRL_D)
            self.assertEqual(terminal.exit_code(), 0)
        self.assertEqual(list(self.home.glob("moed-run-*")), [])
        self.assertEqual(list(self.cache.iterdir()), [])

    def test_nothing_outlives_it(self) -> None:
        for number, code in ((signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGKILL, -signal.SIGKILL)):
            with self.subTest(number), self.conversation() as terminal:
                os.kill(terminal.pid, number)
                self.assertEqual(terminal.exit_code(), code)
                self.wait_until_none_is_left()

    def test_what_a_killed_one_left_goes_and_what_another_holds_stays(self) -> None:
        of_the_user = self.home / "moed-run-models" / "weights"  # a name as a left one may have
        of_the_user.parent.mkdir()
        of_the_user.write_text("kept")
        with self.conversation() as held, self.conversation() as killed:
            daemon = self.daemon_of(killed.pid)
            self.stop(killed.pid)  # it would take away what a dead daemon left, as a daemon does that ends by itself
            os.kill(daemon, signal.SIGKILL)
            os.kill(killed.pid, signal.SIGKILL)
            killed.exit_code()
            self.assertEqual(len(list(self.home.glob("moed-run-*/moed"))), 2)
            self.answer(self.demo_store(), "--memory", DEMO_BUDGET)
            self.assertEqual(len(list(self.home.glob("moed-run-*/moed"))), 1, "of the one that still talks")
            self.assertEqual(of_the_user.read_text(), "kept")
            held.type(b"Once upon a time\n")
            held.wait_for("tokens/s")
        self.wait_until_none_is_left()

    def test_the_images_health_check_finds_a_conversation(self) -> None:
        def healthy(process: int = 1) -> subprocess.CompletedProcess[str]:
            return subprocess.run(
                ["sh", str(ROOT / "deploy" / "healthcheck.sh"), str(process)],
                capture_output=True,
                text=True,
                timeout=CALL_SECONDS,
                env={"PATH": f"{self.binaries}:{os.environ['PATH']}", "MOED_LISTEN": "0.0.0.0:1", **self.environment},
            )

        with self.conversation():
            self.assertEqual(healthy().returncode, 0, healthy().stderr)
        self.wait_until_none_is_left()
        self.assertEqual(healthy().returncode, 3, "nobody serves")
        with self.running("--store", self.demo_store(), "--memory-budget", DEMO_BUDGET) as daemon:
            self.environment["MOED_LISTEN"] = daemon.address.replace("127.0.0.1", "0.0.0.0")
            self.assertEqual(healthy().returncode, 0, healthy().stderr)

    def test_the_images_health_check_takes_the_daemons_flag(self) -> None:
        def healthy(process: int) -> int:
            environment = {"PATH": f"{self.binaries}:{os.environ['PATH']}", "MOED_LISTEN": "0.0.0.0:1", **self.environment}
            command = ["sh", str(ROOT / "deploy" / "healthcheck.sh"), str(process)]
            return subprocess.run(command, capture_output=True, timeout=CALL_SECONDS, env=environment).returncode

        port, path = free_port(), self.home / "socket"
        for listen in (f"127.0.0.1:{port}", f"0.0.0.0:{port}", f"unix:{path}"):
            for flag in (["--listen", listen], [f"--listen={listen}"]):
                command = [str(self.binaries / "moed"), "--store", str(self.demo_store()), "--memory-budget", DEMO_BUDGET]
                with (
                    self.subTest(flag),
                    contextlib.closing(ServerProcess([*command, "--metrics-listen", "off", "--insecure", *flag])) as daemon,
                ):
                    daemon.wait_for_line("(ready: )")
                    self.assertEqual(healthy(daemon.pid), 0)

    def test_a_daemon_that_dies_ends_it_and_its_log_is_named(self) -> None:
        with self.conversation() as terminal:
            for process in self.processes():
                with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # one that ended by itself
                    if b"--listen" in pathlib.Path(f"/proc/{process}/cmdline").read_bytes():
                        os.kill(process, signal.SIGKILL)
            terminal.wait_for("was killed")
            terminal.wait_for(str(self.cache))
            self.assertEqual(terminal.exit_code(), 1)


if __name__ == "__main__":
    main()
