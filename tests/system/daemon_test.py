"""How the real daemon behaves around its requests: addresses, configuration, trace and logs, a full queue, and clients that go
away in every rude manner."""

import contextlib
import json
import os
import signal
import subprocess
from collections.abc import Mapping

import grpc

from tests.real_programs import main, metrics_of
from tests.system.daemon_rig import PROMPT, SLOW, WAIT_SECONDS, DaemonTestCase, Stream, eventually, idle, metric, request, stats
from tools.daemon import Daemon

EXIT_BUSY = 5
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"


class StreamingClient:
    """A moectl whose first byte of the answer has come."""

    def __init__(self, daemon: Daemon, new_tokens: int):
        command = [str(daemon.binaries / "moectl"), "--server", daemon.address, "generate", "--prompt", PROMPT]
        command += ["--max-new-tokens", str(new_tokens), "--temperature", "0", "--ignore-eos"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0)
        assert self.process.stdout is not None
        self._first = self.process.stdout.read(1)

    def read_all(self) -> tuple[str, str]:
        """The whole answer and the errors, once it has ended."""
        rest, errors = self.process.communicate(timeout=WAIT_SECONDS)
        return (self._first + rest).decode(errors="replace"), errors.decode()


class DaemonTest(DaemonTestCase):
    # Addresses and configuration

    def test_control_on_an_address_of_its_own(self) -> None:
        with self.serving("--memory-budget", "64MiB", "--control-listen", "127.0.0.1:0") as daemon:
            control = daemon.find(r"control on (127\.0\.0\.1:\d+)")
            assert control, daemon.log()
            self.assertNotEqual(control, daemon.address)

            def ask(address: str, *what: str) -> subprocess.CompletedProcess[str]:
                return self.run_program("moectl", "--server", address, *what)

            generate = ("generate", "--prompt", PROMPT, "--max-new-tokens", "2")
            for address, what, served in (
                (control, ("info",), True),
                (control, ("stats",), True),
                (control, generate, False),
                (daemon.address, ("info",), False),
                (daemon.address, generate, True),
            ):
                answer = ask(address, *what)
                self.assertEqual(answer.returncode == 0, served, (address, what, answer.stderr))
                if not served:
                    self.assertIn("UNIMPLEMENTED", answer.stderr)
            for address in (control, daemon.address):
                self.assertEqual(ask(address, "health").returncode, 0)

    def test_flags_win_over_the_environment_and_that_over_the_file(self) -> None:
        file = self.folder / "moed.toml"
        file.write_text(f'store = "{self.store}"\nmemory-budget = "64MiB"\npolicy = "lfu"\nmax-running = 3\nqueue-capacity = 5\n')
        variables = {"MOED_CONFIG": str(file), "MOED_MAX_RUNNING": "4", "MOED_QUEUE_CAPACITY": "6"}
        with self.running("--queue-capacity", 7, environment=variables) as daemon:
            server = daemon.json("info")["server"]
        self.assertEqual((server["policy"], server["max_sessions"], server["queue_capacity"]), ("lfu", 4, 7))
        self.assertEqual(int(server["memory_budget_bytes"]), 64 << 20)

    def test_wrong_settings_say_where_they_came_from(self) -> None:
        file = self.folder / "wrong.toml"
        file.write_text('polcy = "lru"\n')
        cases: tuple[tuple[tuple[str, ...], Mapping[str, str], tuple[str, ...]], ...] = (
            ((), {"MOED_POLICY": "mru"}, ("MOED_POLICY", "mru", "lru")),
            (("--threads", "0"), {}, ("--threads", "flag")),
            (("--config", str(file)), {}, (str(file), "polcy", "policy")),
            (("--config", str(self.folder / "absent.toml")), {}, ("absent.toml",)),
            ((), {"MOED_PRESET_OPTIONS": "hobbit-t3=1"}, ("--preset", "hobbit-t3", "priced-skip-part")),
            ((), {"MOED_PRESET": "swapmoe", "MOED_FILL_CACHE": "on"}, ("--preset", "swapmoe")),
        )
        for flags, variables, named in cases:
            run = self.run_program("moed", "--store", self.store, *flags, environment=variables)
            self.assertEqual(run.returncode, 2, run.stderr)
            for part in named:
                self.assertIn(part, run.stderr)

    def test_the_breakdown_accounts_for_the_steps(self) -> None:
        with self.serving("--memory-budget", "14MiB") as daemon:
            daemon.json("generate", "--prompt", PROMPT, "--max-new-tokens", 12, "--ignore-eos")
            parts = {part["part"]: part for part in stats(daemon)["step_parts"]}
            self.assertLessEqual({"attention", "router", "expert", "wait", "sampling", "hand out", "step"}, set(parts))
            self.assertEqual(int(parts["step"]["decode"]["count"]), 11)
            for kind in ("prefill", "decode"):
                inside = sum(part[kind]["seconds"] for name, part in parts.items() if name not in ("step", "hand out"))
                self.assertGreater(inside, 0)
                self.assertLessEqual(inside, parts["step"][kind]["seconds"], "no part is counted twice")
            table = daemon.moectl("stats", "--breakdown").stdout
            for word in ("attention", "decode ms", "other"):
                self.assertIn(word, table)

    def test_the_cache_is_changed_while_it_serves(self) -> None:
        kept = self.folder / "kept-residency"
        flags = ("--memory-budget", "16MiB", "--max-memory-budget", "24MiB", "--residency", kept)
        with self.serving(*flags) as daemon:
            answer = ("generate", "--prompt", PROMPT, "--max-new-tokens", 24, "--temperature", 0)
            first = daemon.moectl(*answer).stdout
            for budget in ("9MiB", "24MiB", "10MiB"):
                self.assertIn(f"memory budget {budget[:-3]}.0 MiB", daemon.moectl("resize", budget).stdout)
                self.assertEqual(daemon.moectl(*answer).stdout, first)
            self.assertIn(f"moe_memory_budget_bytes {10 << 20}\n", metrics_of(daemon))
            for budget, reason in (("4MiB", "the smallest budget that works"), ("25MiB", "--max-memory-budget")):
                self.assertIn(reason, daemon.moectl("resize", budget, check=False).stderr)
            self.assertIn("2 experts are pinned", daemon.moectl("pin", "0:1", "3:5").stdout)
            self.assertIn("experts may be pinned", daemon.moectl("pin", *[f"4:{i}" for i in range(32)], check=False).stderr)
            self.assertIn("0 experts are pinned", daemon.moectl("unpin", "--all").stdout)
            self.assertIn("5 experts are taken", daemon.moectl("prefetch", "--hottest", 5).stdout)
            saved = int(daemon.moectl("residency", "save").stdout.split()[0])
            self.assertEqual(len(kept.read_text().splitlines()), saved + 2)
            self.assertIn("experts are read", daemon.moectl("residency", "restore").stdout)
            daemon.moectl("log-level", "error")
            lines = daemon.log()
            daemon.moectl("unpin", "--all")
            self.assertEqual(daemon.log(), lines, "no line of what changed")
            self.assertEqual(daemon.moectl(*answer).stdout, first)
            self.assertEqual(daemon.stop(), 0, daemon.log())
        with self.serving("--memory-budget", "16MiB") as daemon:
            self.assertIn("--residency", daemon.moectl("residency", "save", check=False).stderr)

    def test_the_cache_is_full_before_the_first_request(self) -> None:
        filled = 'moe_expert_load_seconds_count{source="disk",reason="fill"}'
        with self.serving("--memory-budget", "64MiB") as daemon:
            self.assertIn("cache filled while the disk is idle", daemon.moectl("info").stdout)
            eventually(lambda: metric(daemon, filled) == 256, "every expert to be there")
            used = daemon.json("generate", "--prompt", PROMPT, "--max-new-tokens", 16, "--ignore-eos")["stats"]
            self.assertEqual(used["expert_misses"], 0)
            self.assertEqual(used["bytes_read"], 0)
        with self.serving("--memory-budget", "64MiB", "--fill-cache", "off") as daemon:
            self.assertIn("cache filled on demand", daemon.moectl("info").stdout)
            daemon.json("generate", "--prompt", PROMPT, "--max-new-tokens", 16, "--ignore-eos")
            self.assertEqual(metric(daemon, filled), 0)

    # What it writes

    def test_the_trace_shows_reads_and_experts(self) -> None:
        trace = self.folder / "trace.json"
        with self.serving("--memory-budget", "64MiB", "--predictor", "none", "--fill-cache", "off", "--trace", trace) as daemon:
            used = daemon.json("generate", "--prompt", PROMPT, "--max-new-tokens", 16, "--ignore-eos")["stats"]
            self.assertEqual(daemon.stop(), 0, daemon.log())
        events = [event for event in json.loads(trace.read_text())["traceEvents"] if event["ph"] == "X"]
        reads = [event for event in events if event["name"] == "read"]
        experts = [event for event in events if event["name"] == "expert"]
        self.assertEqual(len(reads), used["expert_misses"])
        # One span before and one with the last matrix, for each expert or for several together.
        lookups = used["expert_hits"] + used["expert_misses"]
        layer_steps = len({(event["name"], event["ts"]) for event in events if event["name"] == "router"})
        self.assertGreaterEqual(len(experts), 2 * layer_steps)
        self.assertLessEqual(len(experts), 2 * lookups)
        self.assertEqual(sum(event["args"]["bytes"] for event in reads), used["bytes_read"])
        for event in events:
            self.assertGreaterEqual(event["dur"], 0)

    def test_the_request_log_says_who_called_and_in_which_trace(self) -> None:
        from moe.v1 import inference_pb2, inference_pb2_grpc

        log = self.folder / "callers.log"
        hostile = (f"00-{TRACE}-00f067aa0ba902b7-0x", "x" * 500, "{}", f"00-{'0' * 32}-00f067aa0ba902b7-01")
        with self.serving("--memory-budget", "64MiB", "--request-log", log) as daemon:
            with grpc.insecure_channel(daemon.address) as channel:
                stub = inference_pb2_grpc.InferenceStub(channel)
                stub.Generate(request(2), metadata=[("traceparent", f"00-{TRACE}-00f067aa0ba902b7-01")])
                for value in hostile:
                    stub.Generate(request(2), metadata=[("traceparent", value)])
                stub.Generate(request(2), metadata=[("traceparent", f"00-{TRACE}-00f067aa0ba902b7-01")] * 2)
                refused = inference_pb2.TokenizeRequest(text="x" * ((1 << 20) + 1))
                with self.assertRaises(grpc.RpcError):
                    stub.Tokenize(refused, metadata=[("traceparent", f"00-{TRACE}-00f067aa0ba902b7-01")])
            self.assertEqual(daemon.stop(), 0, daemon.log())
        lines = [json.loads(line) for line in log.read_text().splitlines()]
        self.assertEqual([line.get("trace_id") for line in lines], [TRACE, *[None] * (len(hostile) + 1), TRACE])
        for line in lines:
            self.assertRegex(line["peer"], r"^ipv4:127\.0\.0\.1:\d+$")
            self.assertRegex(line["time"], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$")
            self.assertGreater(line["duration_seconds"], 0)
        self.assertEqual([lines[0]["completion_tokens"], lines[-1]["method"]], [2, "Tokenize"])
        self.assertNotIn("xxx", log.read_text())

    def test_the_request_log_may_be_off(self) -> None:
        with self.serving("--memory-budget", "64MiB", "--request-log", "off") as daemon:
            daemon.json("generate", "--prompt", PROMPT, "--max-new-tokens", 2)
            self.assertEqual(daemon.stop(), 0)
            self.assertNotIn("completion_tokens", daemon.log())

    def test_the_request_log_has_ids_and_timings_and_never_text(self) -> None:
        log = self.folder / "requests.log"
        words = ("quokka", "zanzibar")
        with self.serving("--memory-budget", "64MiB", "--request-log", log, "--log-level", "trace") as daemon:
            secret = " ".join(words)
            answer = daemon.json("generate", "--prompt", secret, "--request-id", "mine", "--max-new-tokens", 8, "--ignore-eos")
            daemon.moectl(
                "generate", "--prompt", secret, "--request-id", "refused", "--temperature", -1, "--stop", secret, check=False
            )
            daemon.moectl("generate", "--prompt", secret * 1000, "--request-id", "long", check=False)
            daemon.moectl("tokenize", "--text", secret)
            self.assertEqual(daemon.stop(), 0)
            text = daemon.log()
        written = log.read_text()
        lines = [json.loads(line) for line in written.splitlines()]
        by_id = {line["id"]: line for line in lines}
        self.assertEqual([line["method"] for line in lines], ["GenerateStream", "GenerateStream", "GenerateStream", "Tokenize"])
        self.assertEqual(by_id["mine"]["code"], "OK")
        self.assertEqual(by_id["mine"]["reason"], "length")
        self.assertEqual(by_id["mine"]["completion_tokens"], 8)
        for key in ("queue_seconds", "prefill_seconds", "decode_seconds", "ttft_seconds", "duration_seconds"):
            self.assertGreaterEqual(by_id["mine"][key], 0)
        for refused in ("refused", "long"):
            self.assertEqual(by_id[refused]["code"], "INVALID_ARGUMENT")
        for forbidden in (*words, answer["text"].strip()):
            self.assertNotIn(forbidden, written)
            self.assertNotIn(forbidden, text)

    # Too many requests, and clients that vanish

    def test_a_full_queue_is_told_and_counted(self) -> None:
        with self.serving(*SLOW, "--max-running", 1, "--queue-capacity", 1) as daemon:
            load = ("--requests", 24, "--concurrency", 12, "--max-new-tokens", 10, "--ignore-eos", "--json")
            ended = daemon.moectl("bench", *load, check=False)
            self.assertEqual(ended.returncode, 7, ended.stderr)
            report = json.loads(ended.stdout)
            self.assertGreater(report["ok"], 0)
            self.assertEqual(list(report["errors"]), ["RESOURCE_EXHAUSTED"])
            self.assertEqual(report["ok"] + report["errors"]["RESOURCE_EXHAUSTED"], 24)
            self.assertEqual(
                metric(daemon, 'moe_requests_rejected_total{reason="queue_full"}'), report["errors"]["RESOURCE_EXHAUSTED"]
            )

            running = Stream(daemon, 1000)
            running.read()
            waiting = Stream(daemon, 1000)
            eventually(lambda: stats(daemon)["waiting"] == 1, "a waiting request")
            busy = daemon.moectl("generate", "--prompt", PROMPT, check=False)
            self.assertEqual(busy.returncode, EXIT_BUSY, busy.stderr)
            self.assertIn("retry after", busy.stderr)
            for stream in (waiting, running):
                stream.cancel()
            eventually(lambda: idle(daemon), "the cancelled requests to end")
            self.assertEqual(daemon.moectl("generate", "--prompt", PROMPT, "--max-new-tokens", 2).returncode, 0)

    def open_and_cancel(self, daemon: Daemon, clients: int) -> None:
        """Each on a connection of its own, up to forty at once; most go before they stream, as many as run while they do."""
        for begin in range(0, clients, 40):
            streams = [Stream(daemon, 1000) for _ in range(begin, min(begin + 40, clients))]
            reading = streams[::14]
            for stream in streams:
                if stream not in reading:
                    stream.cancel()
            for stream in reading:
                with contextlib.suppress(grpc.RpcError):  # the queue may have been full
                    stream.read()
                stream.cancel()

    def test_clients_that_go_away_leave_nothing_behind(self) -> None:
        with self.serving(*SLOW, "--max-running", 4, "--queue-capacity", 16) as daemon:

            def descriptors() -> int:
                return len(os.listdir(f"/proc/{daemon.pid}/fd"))

            whole = daemon.moectl(
                "generate", "--prompt", PROMPT, "--max-new-tokens", 200, "--temperature", 0, "--ignore-eos"
            ).stdout
            self.open_and_cancel(daemon, 40)  # also warms the daemon up
            eventually(lambda: idle(daemon), "the first round to end")
            resident_bytes, open_before = daemon.memory_bytes("VmRSS"), descriptors()

            stopped = StreamingClient(daemon, 200)
            stopped.process.send_signal(signal.SIGSTOP)
            self.open_and_cancel(daemon, 200)
            killed = [StreamingClient(daemon, 1000) for _ in range(3)]
            for client in killed:
                client.process.kill()
                client.read_all()
            eventually(lambda: idle(daemon), "every request to end")
            stopped.process.send_signal(signal.SIGCONT)
            answer, errors = stopped.read_all()
            self.assertEqual(stopped.process.returncode, 0, errors)
            self.assertEqual(answer, whole, "the server held the whole answer for it")

            eventually(lambda: descriptors() <= open_before, "connections to close")
            self.assertLess(daemon.memory_bytes("VmRSS"), resident_bytes + (8 << 20))
            again = daemon.moectl(
                "generate", "--prompt", PROMPT, "--max-new-tokens", 200, "--temperature", 0, "--ignore-eos"
            ).stdout
            self.assertEqual(again, whole)
            self.assertEqual(daemon.stop(), 0, daemon.log())


if __name__ == "__main__":
    main()
