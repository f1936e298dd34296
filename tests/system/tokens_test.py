"""Tokens: who may do what, over real sockets, at the daemon and through moed-http."""

import contextlib
import hashlib
import json
import pathlib
import re
import signal
import subprocess
from typing import Any, ClassVar

import grpc

from tests.http.front import front_of
from tests.real_programs import RealProgramsTest, main, metrics_of
from tests.tokens import line, write_tokens
from tools.daemon import Daemon, pack_demo
from tools.server_process import wait_until

WAIT_SECONDS = 300
BUDGET = ("--memory-budget", "64MiB")
# Their names are none of the scopes.
TOKENS = {"asker": ("infer", "a" * 40), "watcher": ("observe", "b" * 40), "steward": ("control", "c" * 40)}
ALL = ("everything", "infer,observe,control", "d" * 40)
INFERENCE = (
    "Generate",
    "GenerateStream",
    "Chat",
    "ChatStream",
    "CountTokens",
    "Score",
    "Tokenize",
    "Detokenize",
    "DeleteSession",
)
OBSERVING = ("GetServerInfo", "GetModelInfo", "GetStats", "GetCacheState", "GetExpertMap", "ListSessions")
CHANGING = (
    "ResizeMemory",
    "PinExperts",
    "PrefetchExperts",
    "SaveResidency",
    "RestoreResidency",
    "SetLogLevel",
    "Abort",
    "Drain",
    "Undrain",
    "LoadModel",
    "UnloadModel",
)
NEEDED = {
    **{f"/moe.v1.Inference/{method}": "infer" for method in INFERENCE},
    **{f"/moe.v1.Control/{method}": "observe" for method in OBSERVING},
    **{f"/moe.v1.Control/{method}": "control" for method in CHANGING},
}
NO_MESSAGE = b"\xff" * 100


def bearer(token: str) -> tuple[str, str]:
    return ("authorization", f"Bearer {token}")


def callers(lines: list[dict[str, Any]]) -> set[str | None]:
    return {each.get("token") for each in lines}


class TokensTest(RealProgramsTest):
    store: ClassVar[pathlib.Path]
    tokens: ClassVar[pathlib.Path]

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        cls.store = pack_demo(cls.binaries, cls.folder, "q8", "q8")
        cls.tokens = cls.folder / "tokens"

    def setUp(self) -> None:
        write_tokens(self.tokens, *((name, *rest) for name, rest in TOKENS.items()), ALL)

    def serving(self, *flags: object) -> contextlib.AbstractContextManager[Daemon]:
        return self.running("--store", self.store, *BUDGET, "--tokens", self.tokens, *flags, environment={"MOECTL_TOKEN": ""})

    def call(self, daemon: Daemon, method: str, body: bytes, *metadata: tuple[str, str]) -> tuple[grpc.StatusCode, str]:
        """What becomes of a call that is a stream for all that the client knows."""
        with grpc.insecure_channel(daemon.address, options=[("grpc.use_local_subchannel_pool", 1)]) as channel:
            call = channel.unary_stream(method)(body, metadata=metadata, timeout=WAIT_SECONDS)
            with contextlib.suppress(grpc.RpcError):
                for _ in call:
                    pass
            return call.code(), call.details()

    def requests_logged(self, daemon: Daemon) -> list[dict[str, Any]]:
        return [json.loads(text) for text in re.findall(r"info request (\{.*\})", daemon.log())]

    def hang_up(self, daemon: Daemon, said: str) -> None:
        before = daemon.log().count(said)
        daemon.send_signal(signal.SIGHUP)
        wait_until(lambda: daemon.log().count(said) > before, f"the log to say '{said}'", WAIT_SECONDS)

    def test_every_method_needs_its_scope_before_anything_is_read(self) -> None:
        with self.serving() as daemon:
            for method, needed in NEEDED.items():
                with self.subTest(method):
                    for metadata in (
                        (),
                        (bearer("x" * 40),),
                        (("authorization", "a" * 40),),
                        (bearer("a" * 40), bearer("d" * 40)),
                    ):
                        code, _ = self.call(daemon, method, NO_MESSAGE, *metadata)
                        self.assertEqual(code, grpc.StatusCode.UNAUTHENTICATED, metadata)
                    for name, (scope, token) in TOKENS.items():
                        code, details = self.call(daemon, method, NO_MESSAGE, bearer(token))
                        if scope == needed:
                            self.assertEqual(code, grpc.StatusCode.INVALID_ARGUMENT, details)
                            continue
                        self.assertEqual(code, grpc.StatusCode.PERMISSION_DENIED)
                        self.assertEqual(details, f"the token of {name} lacks the scope {needed}: it has {scope}")
                    code, _ = self.call(daemon, method, NO_MESSAGE, bearer(ALL[2]))
                    self.assertEqual(code, grpc.StatusCode.INVALID_ARGUMENT)
            self.assertEqual(self.call(daemon, "/grpc.health.v1.Health/Check", b"")[0], grpc.StatusCode.OK)
            self.assertEqual(
                self.call(daemon, "/moe.v1.Control/GetServerInfo", b"", ("x-api-key", "b" * 40))[0], grpc.StatusCode.OK
            )
            self.assertEqual(daemon.stop(), 0, daemon.log())

    def test_every_method_of_the_services_is_in_the_table(self) -> None:
        methods = set()
        for proto in ("control", "inference"):
            text = (pathlib.Path(__file__).parents[2] / "proto" / "moe" / "v1" / f"{proto}.proto").read_text()
            methods |= {f"/moe.v1.{proto.title()}/{method}" for method in re.findall(r"^  rpc (\w+)\(", text, re.M)}
        self.assertEqual(methods, set(NEEDED))

    def test_the_log_has_the_name_and_never_the_token(self) -> None:
        with self.serving() as daemon:
            token = self.folder / "token"
            token.write_text(f"{ALL[2]}\n")
            generate = ("generate", "--prompt", "Once", "--max-new-tokens", 2, "--ignore-eos")
            answer = daemon.moectl("--token-file", token, *generate)
            self.assertEqual(answer.returncode, 0)
            refused = daemon.moectl(*generate, check=False)
            self.assertEqual(refused.returncode, 1)
            self.assertIn("a token is needed", refused.stderr)
            environment = {"MOECTL_TOKEN": TOKENS["asker"][1]}
            run = self.run_program("moectl", "--server", daemon.address, *generate, environment=environment)
            self.assertEqual(run.returncode, 0, run.stderr)
            self.assertEqual(daemon.moectl("--token-file", token, "drain").returncode, 0)
            wait_until(lambda: len(self.requests_logged(daemon)) == 3, "three lines", WAIT_SECONDS)
            lines = self.requests_logged(daemon)
            self.assertEqual([each.get("token") for each in lines], ["everything", None, "asker"])
            self.assertEqual(lines[1]["code"], "UNAUTHENTICATED")
            self.assertRegex(daemon.log(), r"moe\.v1\.DrainRequest from ipv4:\S+ by everything")
            for _, secret in TOKENS.values():
                self.assertNotIn(secret, daemon.log())
            self.assertNotIn(ALL[2], daemon.log())

    def test_a_hangup_reads_them_anew_and_a_wrong_file_changes_nothing(self) -> None:
        info = "/moe.v1.Control/GetServerInfo"
        with self.serving() as daemon:
            write_tokens(self.tokens, ("successor", "observe", "e" * 40))
            self.assertEqual(self.call(daemon, info, b"", bearer("b" * 40))[0], grpc.StatusCode.OK)
            self.hang_up(daemon, "tokens read anew")
            self.assertEqual(self.call(daemon, info, b"", bearer("b" * 40))[0], grpc.StatusCode.UNAUTHENTICATED)
            self.assertEqual(self.call(daemon, info, b"", bearer("e" * 40))[0], grpc.StatusCode.OK)
            for text in ("", line("another", "observe", "f" * 40)[:-20]):
                self.tokens.write_text(text)
                self.hang_up(daemon, "tokens not read anew, those from before go on: --tokens: ")
                self.assertEqual(self.call(daemon, info, b"", bearer("e" * 40))[0], grpc.StatusCode.OK)

    def test_a_wrong_file_is_named_with_the_line(self) -> None:
        good = line("one", "infer", "a" * 40)
        secret = "a-token-by-mistake-in-the-place-of-its-hash"
        for text, said in (
            ("# none\n", "holds no token"),
            (good + "two infer\n", "line 2"),
            (good + f"two infer {secret}\n", "line 2"),
            (good + line("two", "infer,write", "b" * 40), 'unknown scope "write"; allowed are, with commas between them: infer,'),
            (good + line("a/b", "infer", "b" * 40), "a name has 1 to 64 letters"),
            (good + line("two", "control", "a" * 40), "has the hash of an earlier line"),
            (good + line("two", "infer", "b" * 40, "weight=0"), "weight is no number from 1 to 1000"),
            (good + line("two", "infer", "b" * 40, "weight=9999999999"), "weight is no number from 1 to 1000"),
            (good + line("two", "infer", "b" * 40, "max-waiting=-1"), "max-waiting is no number from 0 to"),
            (good + line("two", "infer", "b" * 40, "kv-percent="), "kv-percent is no number from 1 to 100"),
            (good + line("two", "infer", "b" * 40, secret), "there are, each with =NUMBER: weight, max-running,"),
            (good + line("two", "infer", "b" * 40, "weight=1", "weight=1"), "a limit is there twice"),
            (good + line("one", "infer", "b" * 40, "weight=2"), "has other limits than an earlier line of one"),
        ):
            self.tokens.write_text(text)
            run = self.run_program("moed", "--store", self.store, "--listen", "127.0.0.1:0", "--tokens", self.tokens)
            self.assertNotEqual(run.returncode, 0)
            self.assertIn(said, run.stderr)
            self.assertIn("--tokens", run.stderr)
            self.assertNotIn(secret, run.stderr)

    def ask(self, daemon: Daemon, name: str, *arguments: object) -> subprocess.CompletedProcess[str]:
        """As the one of that name."""
        token = {**{who: rest[1] for who, rest in TOKENS.items()}, ALL[0]: ALL[2]}[name]
        return self.run_program("moectl", "--server", daemon.address, *arguments, environment={"MOECTL_TOKEN": token})

    def test_a_session_is_known_to_its_own_token_alone(self) -> None:
        once = ("generate", "--prompt", "Once", "--max-new-tokens", 2, "--ignore-eos", "--session", "tale")
        with self.serving() as daemon:
            self.assertEqual(self.ask(daemon, "asker", *once).returncode, 0)
            self.assertEqual(self.ask(daemon, "asker", *once, "--must-exist").returncode, 0)
            for what in ((*once, "--must-exist"), ("session", "delete", "tale")):
                unknown = self.ask(daemon, "everything", *what)
                self.assertIn("NOT_FOUND", unknown.stderr)
            self.assertEqual(self.ask(daemon, "everything", *once).returncode, 0, "one of its own")
            listed = self.ask(daemon, "watcher", "session", "list").stdout
            self.assertEqual({row.split()[0] for row in listed.splitlines()}, {"asker/tale", "everything/tale"})
            wait_until(lambda: len(self.requests_logged(daemon)) >= 5, "the log", WAIT_SECONDS)
            digests = {each.get("token"): each["session"] for each in self.requests_logged(daemon)}
            self.assertNotEqual(digests["asker"], digests["everything"])
            self.assertNotIn("asker/tale", daemon.log())
            self.assertEqual(self.ask(daemon, "asker", "session", "delete", "tale").returncode, 0)
            self.assertIn("everything/tale", self.ask(daemon, "watcher", "session", "list").stdout)

    def test_a_token_has_so_many_calls_at_once(self) -> None:
        once = ("generate", "--prompt", "Once", "--ignore-eos", "--max-new-tokens")
        slow = ("--backend", "scalar", "--threads", 1, "--max-calls-per-token", 1)
        with self.serving(*slow) as daemon, grpc.insecure_channel(daemon.address) as channel:
            request = b"\x12\x04Once\x32\x05\x08\xb0\x09\x30\x01"  # 1,200 new tokens, ignore_eos
            metadata = [bearer(TOKENS["asker"][1])]
            stream = channel.unary_stream("/moe.v1.Inference/GenerateStream")(request, metadata=metadata, timeout=WAIT_SECONDS)
            next(stream)
            refused = self.ask(daemon, "asker", *once, 1)
            self.assertEqual(refused.returncode, 5, refused.stderr)
            self.assertIn("--max-calls-per-token", refused.stderr)
            self.assertEqual(self.ask(daemon, "everything", *once, 1).returncode, 0)
            stream.cancel()
            wait_until(lambda: self.ask(daemon, "asker", *once, 1).returncode == 0, "the place", WAIT_SECONDS)

    def test_limits_of_a_line_hold_and_are_read_anew(self) -> None:
        once = ("generate", "--prompt", "Once", "--ignore-eos", "--max-new-tokens", 8, "--priority", "low")
        others = [(name, *rest) for name, rest in TOKENS.items() if name != "asker"]
        write_tokens(self.tokens, ("asker", *TOKENS["asker"], "tokens-per-minute=1", "weight=3"), *others, ALL)
        with self.serving() as daemon:
            self.assertEqual(self.ask(daemon, "asker", *once).returncode, 0, "on credit")
            refused = self.ask(daemon, "asker", *once)
            self.assertEqual(refused.returncode, 5, refused.stderr)
            self.assertIn("asker has had its 1 tokens a minute", refused.stderr)
            self.assertRegex(refused.stderr, r"retry")
            self.assertIn('moe_requests_rejected_total{reason="tenant_limit"} 1', metrics_of(daemon))
            self.assertIn('moe_requests_rejected_total{reason="queue_full"} 0', metrics_of(daemon))
            self.assertEqual(self.ask(daemon, "everything", *once).returncode, 0)
            listed = json.loads(self.ask(daemon, "watcher", "tenants", "--json").stdout)["tenants"]
            self.assertEqual([each["name"] for each in listed], ["asker", "everything", "steward", "watcher"])
            asker = listed[0]
            self.assertEqual((asker["weight"], asker["tokens_per_minute"]), (3, 1))
            self.assertEqual((asker["refused"], asker["generated_tokens"]), ("1", "8"))
            self.assertIn("weight=3 tokens-per-minute=1", self.ask(daemon, "watcher", "tenants").stdout)
            write_tokens(self.tokens, ("asker", *TOKENS["asker"], "weight=2"), *others, ALL)
            self.hang_up(daemon, "tokens read anew")
            self.assertEqual(self.ask(daemon, "asker", *once).returncode, 0)

    def test_moectl_makes_tokens_whose_lines_the_daemon_takes(self) -> None:
        made = self.run_program("moectl", "token", "new", "ci", "observe,infer")
        self.assertEqual(made.returncode, 0, made.stderr)
        token, text = made.stdout.splitlines()
        self.assertEqual(text, f"ci infer,observe {hashlib.sha256(token.encode()).hexdigest()}")
        self.assertNotEqual(self.run_program("moectl", "token", "new", "ci", "infer").stdout.splitlines()[0], token)
        self.assertIn("allowed are", self.run_program("moectl", "token", "new", "ci", "all").stderr)
        limited = ("--weight", 4, "--max-running", 2, "--max-waiting", 0, "--tokens-per-minute", 600, "--kv-percent", 25)
        more = self.run_program("moectl", "token", "new", "bot", "infer", *limited)
        self.assertRegex(
            more.stdout, r"\nbot infer \w{64} weight=4 max-running=2 max-waiting=0 tokens-per-minute=600 kv-percent=25\n"
        )
        self.assertNotEqual(self.run_program("moectl", "token", "new", "bot", "infer", "--kv-percent", 101).returncode, 0)
        self.tokens.write_text(text + "\n" + more.stdout.splitlines()[1] + "\n")
        with self.serving() as daemon:
            self.assertEqual(self.call(daemon, "/moe.v1.Control/GetServerInfo", b"", bearer(token))[0], grpc.StatusCode.OK)

    def test_a_token_is_not_shown_in_plain_text_to_other_machines(self) -> None:
        environment = {"MOECTL_TOKEN": "a" * 40}
        away = ("--server", "moed.invalid:50051", "--connect-timeout", 0.05)
        refused = self.run_program("moectl", *away, "health", environment=environment)
        self.assertEqual(refused.returncode, 2)
        self.assertIn("plain text", refused.stderr)
        self.assertEqual(self.run_program("moectl", *away, "--insecure", "health", environment=environment).returncode, 3)
        looks_near = ("--server", "127.0.0.1.invalid:50051", "--connect-timeout", 0.05)
        self.assertEqual(self.run_program("moectl", *looks_near, "health", environment=environment).returncode, 2)

    def test_moed_http_asks_the_daemon_as_its_callers_do(self) -> None:
        own = self.folder / "own"
        own.write_text(TOKENS["watcher"][1])
        body = {"model": "q8-q8", "prompt": "Once", "max_tokens": 2}
        with self.serving() as daemon, front_of(daemon, "--server-token-file", own) as front:
            wait_until(lambda: front.get("/v1/models")[0] == 200, "the model's name", WAIT_SECONDS)
            for token, status in ((TOKENS["asker"][1], 200), (TOKENS["watcher"][1], 403), ("x" * 40, 401)):
                got, answer = front.post("/v1/completions", body, dict([bearer(token)]))
                self.assertEqual(got, status, answer)
            self.assertEqual(front.post("/v1/completions", body)[0], 401)
            self.assertEqual(front.get("/moed/experts", dict([bearer(TOKENS["asker"][1])]))[0], 403)
            wait_until(lambda: "asker" in callers(self.requests_logged(daemon)), "the log", WAIT_SECONDS)
        with self.serving() as daemon, front_of(daemon, "--server-token-file", own, "--tokens", self.tokens) as front:
            for path in ("/v1/models", "/v1/completions"):
                self.assertEqual(front.request("GET", path, None, {})[0], 401 if path == "/v1/models" else 405)
            self.assertEqual(front.post("/v1/completions", body, dict([bearer(TOKENS["asker"][1])]))[0], 200)
            wait_until(lambda: "asker" in callers(front.requests_logged()), "the log", WAIT_SECONDS)
            self.assertNotIn(TOKENS["asker"][1], front.log() + daemon.log())


if __name__ == "__main__":
    main()
