"""How the real daemon behaves around its requests: drain and end, addresses, configuration, trace and logs, a full queue, and clients that
go away in every rude manner."""
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.error
import urllib.request

import grpc

import programs

options = None
inference_pb2 = inference_pb2_grpc = None  # made from proto/ when the tests begin
PROMPT = "Once upon a time there was a little"
# Scalar kernels make the demo model slow: a long answer takes seconds, whatever the machine.
SLOW = ("--memory-budget", "64MiB", "--backend", "scalar", "--threads", 1)
EXIT_UNAVAILABLE, EXIT_BUSY = 3, 5
WAIT_SECONDS = 60


def eventually(condition, what):
    end = time.monotonic() + WAIT_SECONDS
    while time.monotonic() < end:
        if condition():
            return
        time.sleep(0.05)
    raise AssertionError(f"gave up waiting for {what}")


def http_code(daemon, path):
    try:
        with urllib.request.urlopen(f"http://{daemon.metrics_address}{path}", timeout=10) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        return error.code


def request(new_tokens):
    return inference_pb2.GenerateRequest(text=PROMPT, sampling=inference_pb2.Sampling(temperature=0),
                                         stopping=inference_pb2.Stopping(max_new_tokens=new_tokens, ignore_eos=True))


class Stream:
    """A stream on a connection of its own."""

    def __init__(self, daemon, new_tokens):
        self.channel = grpc.insecure_channel(daemon.address, options=[("grpc.use_local_subchannel_pool", 1)])
        self.call = inference_pb2_grpc.InferenceStub(self.channel).GenerateStream(request(new_tokens))
        self.tokens = 0
        self.finish = None

    def read(self):
        """Reads one message."""
        message = next(self.call)
        self.tokens += len(message.token_ids)
        if message.HasField("finish"):
            self.finish = message.finish

    def read_all(self):
        """The status' code in the end."""
        try:
            while True:
                self.read()
        except StopIteration:
            return grpc.StatusCode.OK
        except grpc.RpcError as error:
            return error.code()
        finally:
            self.channel.close()

    def cancel(self):
        self.call.cancel()
        self.channel.close()


def streaming_client(daemon, new_tokens):
    """A moectl whose first bytes of the answer have come."""
    client = subprocess.Popen([os.path.join(daemon.binaries, "moectl"), "--server", daemon.address, "generate", "--prompt", PROMPT,
                               "--max-new-tokens", str(new_tokens), "--temperature", "0", "--ignore-eos"],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0)
    client.first = client.stdout.read(1)
    return client


def stats(daemon):
    return daemon.json("stats")["stats"]


def idle(daemon):
    now = stats(daemon)
    return now["running"] == 0 and now["waiting"] == 0


def metric(daemon, sample):
    with urllib.request.urlopen(f"http://{daemon.metrics_address}/metrics", timeout=10) as answer:
        return float(re.search(rf"^{re.escape(sample)} (\S+)$", answer.read().decode(), re.M).group(1))


class DaemonTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        global inference_pb2, inference_pb2_grpc
        cls.folder = tempfile.TemporaryDirectory()
        cls.store = programs.pack(options.bin, os.path.join(options.source, "models", "tales-qwen"), cls.path("demo.moed"),
                                  "--expert-formats", "q8", "--trunk-format", "q8")
        stubs = cls.path("stubs")
        subprocess.run(["bash", os.path.join(options.source, "client", "python", "generate_stubs.sh"), stubs, sys.executable], check=True)
        sys.path.insert(0, stubs)
        from moe.v1 import inference_pb2 as messages, inference_pb2_grpc as services
        inference_pb2, inference_pb2_grpc = messages, services

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    @classmethod
    def path(cls, name):
        return os.path.join(cls.folder.name, name)

    def running(self, *flags, environment=None):
        return programs.running(options.bin, "--store", self.store, *flags, environment=environment)

    def end(self, daemon, by=signal.SIGTERM):
        """Asks for the end and waits until the daemon says that it drains."""
        daemon.process.send_signal(by)
        eventually(lambda: "draining" in daemon.log(), "the drain")

    def exit_code(self, daemon):
        return daemon.process.wait(timeout=WAIT_SECONDS)

    # The end

    def test_a_drain_lets_what_runs_finish_and_takes_nothing_new(self):
        with self.running(*SLOW) as daemon:
            stream = Stream(daemon, 600)
            stream.read()
            self.assertEqual(http_code(daemon, "/readyz"), 200)
            self.end(daemon)
            refused = daemon.moectl("generate", "--prompt", PROMPT, check=False)
            self.assertEqual(refused.returncode, EXIT_UNAVAILABLE, refused.stderr)
            self.assertIn("draining", refused.stderr)
            self.assertEqual(daemon.moectl("health", check=False).returncode, EXIT_UNAVAILABLE)
            self.assertEqual(http_code(daemon, "/readyz"), 503)
            self.assertEqual(http_code(daemon, "/healthz"), 200)
            self.assertTrue(daemon.json("info")["server"]["draining"])
            self.assertEqual(metric(daemon, 'moe_requests_rejected_total{reason="draining"}'), 1)
            self.assertEqual(stats(daemon)["running"], 1, "all of that was during the stream")
            self.assertEqual(stream.read_all(), grpc.StatusCode.OK)
            self.assertEqual(stream.tokens, 600)
            self.assertEqual(stream.finish.reason, inference_pb2.FINISH_REASON_LENGTH)
            self.assertEqual(self.exit_code(daemon), 0, daemon.log())

    def test_without_drain_time_running_streams_are_ended(self):
        with self.running(*SLOW, "--drain-seconds", 0) as daemon:
            streams = [Stream(daemon, 1000) for _ in range(3)]
            for stream in streams:
                stream.read()
            self.end(daemon)
            for stream in streams:
                self.assertEqual(stream.read_all(), grpc.StatusCode.UNAVAILABLE)
                self.assertLess(stream.tokens, 1000)
            self.assertEqual(self.exit_code(daemon), 0, daemon.log())

    def test_a_second_signal_ends_at_once(self):
        for second in (signal.SIGTERM, signal.SIGINT):
            with self.subTest(second.name), self.running(*SLOW) as daemon:
                stream = Stream(daemon, 1000)
                stream.read()
                self.end(daemon)
                daemon.process.send_signal(second)
                self.assertEqual(self.exit_code(daemon), 128 + second)
                self.assertEqual(stream.read_all(), grpc.StatusCode.UNAVAILABLE)

    # Addresses and configuration

    def test_control_on_an_address_of_its_own(self):
        with self.running("--memory-budget", "64MiB", "--control-listen", "127.0.0.1:0") as daemon:
            control = re.search(r"control on (127\.0\.0\.1:\d+)", daemon.log()).group(1)
            self.assertNotEqual(control, daemon.address)
            ask = lambda address, *what: subprocess.run([os.path.join(options.bin, "moectl"), "--server", address, *what],
                                                        capture_output=True, text=True, timeout=WAIT_SECONDS)
            generate = ("generate", "--prompt", PROMPT, "--max-new-tokens", "2")
            for address, what, served in ((control, ("info",), True), (control, ("stats",), True), (control, generate, False),
                                          (daemon.address, ("info",), False), (daemon.address, generate, True)):
                answer = ask(address, *what)
                self.assertEqual(answer.returncode == 0, served, (address, what, answer.stderr))
                if not served:
                    self.assertIn("UNIMPLEMENTED", answer.stderr)
            for address in (control, daemon.address):
                self.assertEqual(ask(address, "health").returncode, 0)

    def test_flags_win_over_the_environment_and_that_over_the_file(self):
        file = self.path("moed.toml")
        with open(file, "w") as out:
            out.write(f'store = "{self.store}"\nmemory-budget = "64MiB"\npolicy = "lfu"\nmax-sessions = 3\nqueue-capacity = 5\n')
        variables = {"MOED_CONFIG": file, "MOED_MAX_SESSIONS": "4", "MOED_QUEUE_CAPACITY": "6"}
        with programs.running(options.bin, "--queue-capacity", 7, environment=variables) as daemon:
            server = daemon.json("info")["server"]
        self.assertEqual((server["policy"], server["max_sessions"], server["queue_capacity"]), ("lfu", 4, 7))
        self.assertEqual(int(server["memory_budget_bytes"]), 64 << 20)

    def test_wrong_settings_say_where_they_came_from(self):
        file = self.path("wrong.toml")
        with open(file, "w") as out:
            out.write('polcy = "lru"\n')
        for flags, variables, named in (((), {"MOED_POLICY": "mru"}, ("MOED_POLICY", "mru", "lru")),
                                        (("--threads", "0"), {}, ("--threads", "flag")),
                                        (("--config", file), {}, (file, "polcy", "policy")),
                                        (("--config", self.path("absent.toml")), {}, ("absent.toml",))):
            run = subprocess.run([os.path.join(options.bin, "moed"), "--store", self.store, *flags], capture_output=True, text=True,
                                 timeout=WAIT_SECONDS, env={**os.environ, **variables})
            self.assertEqual(run.returncode, 2, run.stderr)
            for part in named:
                self.assertIn(part, run.stderr)

    def test_the_breakdown_accounts_for_the_steps(self):
        with self.running("--memory-budget", "14MiB") as daemon:
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

    def test_the_cache_is_full_before_the_first_request(self):
        filled = 'moe_expert_load_seconds_count{source="disk",reason="fill"}'
        with self.running("--memory-budget", "64MiB") as daemon:
            self.assertIn("cache filled while the disk is idle", daemon.moectl("info").stdout)
            eventually(lambda: metric(daemon, filled) == 256, "every expert to be there")
            used = daemon.json("generate", "--prompt", PROMPT, "--max-new-tokens", 16, "--ignore-eos")["stats"]
            self.assertEqual(used["expert_misses"], 0)
            self.assertEqual(used["bytes_read"], 0)
        with self.running("--memory-budget", "64MiB", "--fill-cache", "off") as daemon:
            self.assertIn("cache filled on demand", daemon.moectl("info").stdout)
            daemon.json("generate", "--prompt", PROMPT, "--max-new-tokens", 16, "--ignore-eos")
            self.assertEqual(metric(daemon, filled), 0)

    # What it writes

    def test_the_trace_shows_reads_and_experts(self):
        trace = self.path("trace.json")
        with self.running("--memory-budget", "64MiB", "--predictor", "none", "--fill-cache", "off", "--trace", trace) as daemon:
            used = daemon.json("generate", "--prompt", PROMPT, "--max-new-tokens", 16, "--ignore-eos")["stats"]
            self.assertEqual(daemon.stop(), 0, daemon.log())
        with open(trace) as file:
            events = [event for event in json.load(file)["traceEvents"] if event["ph"] == "X"]
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

    def test_the_request_log_has_ids_and_timings_and_never_text(self):
        log = self.path("requests.log")
        words = ("quokka", "zanzibar")
        with self.running("--memory-budget", "64MiB", "--request-log", log, "--log-level", "trace") as daemon:
            secret = " ".join(words)
            answer = daemon.json("generate", "--prompt", secret, "--request-id", "mine", "--max-new-tokens", 8, "--ignore-eos")
            daemon.moectl("generate", "--prompt", secret, "--request-id", "refused", "--temperature", -1, "--stop", secret, check=False)
            daemon.moectl("generate", "--prompt", secret * 1000, "--request-id", "long", check=False)
            daemon.moectl("tokenize", "--text", secret)
            self.assertEqual(daemon.stop(), 0)
            text = daemon.log()
        with open(log) as file:
            written = file.read()
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

    def test_a_full_queue_is_told_and_counted(self):
        with self.running(*SLOW, "--max-sessions", 1, "--queue-capacity", 1) as daemon:
            report = daemon.json("bench", "--requests", 24, "--concurrency", 12, "--max-new-tokens", 10, "--ignore-eos")
            self.assertGreater(report["ok"], 0)
            self.assertEqual(list(report["errors"]), ["RESOURCE_EXHAUSTED"])
            self.assertEqual(report["ok"] + report["errors"]["RESOURCE_EXHAUSTED"], 24)
            self.assertEqual(metric(daemon, 'moe_requests_rejected_total{reason="queue_full"}'), report["errors"]["RESOURCE_EXHAUSTED"])

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

    def open_and_cancel(self, daemon, clients):
        """Each on a connection of its own, up to forty at once; some go before they are admitted, some while they stream."""
        for begin in range(0, clients, 40):
            streams = [Stream(daemon, 1000) for _ in range(begin, min(begin + 40, clients))]
            for i, stream in enumerate(streams):
                if i % 8 == 0:
                    with contextlib.suppress(grpc.RpcError):  # the queue may be full
                        stream.read()
                stream.cancel()

    def test_clients_that_go_away_leave_nothing_behind(self):
        with self.running(*SLOW, "--max-sessions", 4, "--queue-capacity", 16) as daemon:
            descriptors = lambda: len(os.listdir(f"/proc/{daemon.process.pid}/fd"))
            whole = daemon.moectl("generate", "--prompt", PROMPT, "--max-new-tokens", 200, "--temperature", 0, "--ignore-eos").stdout
            self.open_and_cancel(daemon, 40)  # also warms the daemon up
            eventually(lambda: idle(daemon), "the first round to end")
            resident_bytes, open_before = daemon.status("VmRSS"), descriptors()

            stopped = streaming_client(daemon, 200)
            stopped.send_signal(signal.SIGSTOP)
            self.open_and_cancel(daemon, 200)
            killed = [streaming_client(daemon, 1000) for _ in range(3)]
            for client in killed:
                client.kill()
                client.communicate(timeout=WAIT_SECONDS)
            eventually(lambda: idle(daemon), "every request to end")
            stopped.send_signal(signal.SIGCONT)
            rest, errors = stopped.communicate(timeout=WAIT_SECONDS)
            self.assertEqual(stopped.returncode, 0, errors)
            self.assertEqual((stopped.first + rest).decode(), whole, "the server held the whole answer for it")

            eventually(lambda: descriptors() <= open_before, "connections to close")
            self.assertLess(daemon.status("VmRSS"), resident_bytes + (8 << 20))
            again = daemon.moectl("generate", "--prompt", PROMPT, "--max-new-tokens", 200, "--temperature", 0, "--ignore-eos").stdout
            self.assertEqual(again, whole)
            self.assertEqual(daemon.stop(), 0, daemon.log())


if __name__ == "__main__":
    options = programs.parse_options(__doc__)
    unittest.main(argv=sys.argv[:1] + ["-v"] + options.rest)
