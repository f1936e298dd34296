"""Models that come and go while the daemon serves: moectl load and unload, and what requests see of it."""

import contextlib
import os
import pathlib
import re
import signal
import struct
import subprocess
import sys
from typing import Any, ClassVar

from tests.real_programs import CALL_SECONDS, RealProgramsTest, main, metrics_of
from tests.system.http2_client import WINDOW_UPDATE, Http2Client
from tools.daemon import Daemon, pack, pack_demo
from tools.server_process import wait_until

BUDGET = ("--memory-budget", "64MiB", "--threads", 1)
GENERATE = ("--prompt", "Once upon a time", "--max-new-tokens", 8, "--temperature", 0, "--ignore-eos", "--logprobs", 1)
# Of gRPC and of the kernel's io_uring, which make and end them as they need them.
PASSING_THREADS = re.compile(r"nexting_thread|grpc_global_tim|default-executo|resolver-execut|event_engine|timer_manager|iou-")
MARGIN_BYTES = 8 << 20
LARGEST_WINDOW = 2**31 - 1


class LiveModel(RealProgramsTest):
    store: ClassVar[pathlib.Path]
    other: ClassVar[pathlib.Path]
    models: ClassVar[pathlib.Path]  # --models-folder, with both

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        cls.models = cls.folder / "models"
        cls.models.mkdir()
        cls.store = pack_demo(cls.binaries, cls.models, "q4", "q8")
        cls.other = pack_demo(cls.binaries, cls.models, "q8", "q8")

    def daemon(self, *flags: object) -> Any:
        return self.running("--store", self.store, "--models-folder", self.models, *BUDGET, *flags)

    def answer(self, daemon: Daemon) -> dict[str, Any]:
        answer = daemon.json("generate", *GENERATE)
        return {name: answer[name] for name in ("text", "token_ids", "logprobs")}

    def fails(self, daemon: Daemon, *arguments: object) -> str:
        run = daemon.moectl(*arguments, check=False)
        self.assertNotEqual(run.returncode, 0, run.stdout)
        return run.stderr

    def stream(self, daemon: Daemon, *flags: object, **options: Any) -> subprocess.Popen[str]:
        """Of many tokens, once its first text is there."""
        command = [daemon.binaries / "moectl", "--server", daemon.address, "generate", "--prompt", "Once upon a time"]
        command += ["--ignore-eos", "--temperature", 0, *flags]
        stream = subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)
        assert stream.stdout is not None
        self.assertTrue(stream.stdout.read(1))
        return stream

    def test_load_unload_and_replace(self) -> None:
        with self.daemon() as daemon:
            first = self.answer(daemon)
            counters = self.counters(daemon)
            self.assertIn("a model is loaded: unload it first", self.fails(daemon, "load"))
            unloaded = daemon.moectl("unload").stdout
            self.assertRegex(unloaded, r"unloaded: the process takes [\d.]+ MiB")
            self.assertIn("no model is loaded: Control.UnloadModel took it out", self.fails(daemon, "generate", *GENERATE))
            self.assertIn("no model is loaded", self.fails(daemon, "unload"))
            self.assertEqual(daemon.moectl("health", check=False).returncode, 3)
            self.assertIn("no model is loaded", daemon.json("info")["server"]["model_state"])
            counters = self.grown(daemon, counters)
            self.assertIn("moe_ready 0", metrics_of(daemon))

            loaded = daemon.moectl("load")
            self.assertIn("reading", loaded.stderr)
            self.assertIn(f"from {self.store}", loaded.stdout)
            self.assertEqual(self.answer(daemon), first)
            counters = self.grown(daemon, counters)

            daemon.moectl("load", self.other.name, "--replace")
            self.assertEqual(daemon.json("info")["model"]["store_path"], str(self.other))
            self.assertNotEqual(self.answer(daemon)["logprobs"], first["logprobs"])
            counters = self.grown(daemon, counters)
            daemon.moectl("load", self.store, "--replace", "--memory-budget", "48MiB")
            self.assertEqual(int(daemon.json("info")["server"]["memory_budget_bytes"]), 48 << 20)
            self.assertEqual(self.answer(daemon), first)
            self.grown(daemon, counters)
            self.assertEqual(daemon.stop(), 0, daemon.log())

    def test_what_was_resized_stays_so(self) -> None:
        def budget() -> int:
            return int(daemon.json("info")["server"]["memory_budget_bytes"])

        with self.daemon("--kv-budget", "4MiB") as daemon:
            daemon.moectl("resize", "48MiB")
            daemon.moectl("load", self.other, "--replace")
            self.assertEqual(budget(), 48 << 20)
            daemon.moectl("resize", "56MiB")
            daemon.moectl("unload")
            self.assertEqual(budget(), 56 << 20)
            daemon.moectl("load", "--memory-budget", "48MiB")
            self.assertEqual(budget(), 48 << 20)
            daemon.moectl("load", "--replace")
            self.assertEqual(budget(), 56 << 20)
            daemon.moectl("resize", "64MiB")  # as at the start
            self.assertIn("at most the server's 64.0 MiB", self.fails(daemon, "load", "--replace", "--memory-budget", "65MiB"))
            daemon.moectl("load", "--replace", "--memory-budget", "64MiB")
            self.assertEqual(daemon.stop(), 0, daemon.log())

    def test_the_largest_budget_that_was_may_be_asked_for(self) -> None:
        with self.daemon("--kv-budget", "4MiB", "--max-memory-budget", "80MiB") as daemon:
            for budget in ("72MiB", "48MiB"):
                daemon.moectl("resize", budget)
            self.assertIn("at most the server's 72.0 MiB", self.fails(daemon, "load", "--replace", "--memory-budget", "73MiB"))
            daemon.moectl("load", self.other, "--replace", "--memory-budget", "72MiB")
            self.assertEqual(int(daemon.json("info")["server"]["memory_budget_bytes"]), 72 << 20)

    def test_a_model_that_was_loaded_in_less_may_grow_to_the_budget_of_the_start(self) -> None:
        with self.daemon("--kv-budget", "4MiB") as daemon:
            first = self.answer(daemon)
            daemon.moectl("load", "--replace", "--memory-budget", "32MiB")
            self.assertIn("memory budget 64.0 MiB", daemon.moectl("resize", "64MiB").stdout)
            self.assertEqual(self.answer(daemon), first)
            self.assertIn("at most", self.fails(daemon, "resize", "65MiB"))

    def counters(self, daemon: Daemon) -> dict[str, float]:
        lines = [line for line in metrics_of(daemon).splitlines() if not line.startswith("#")]
        samples = dict(line.rsplit(" ", 1) for line in lines)
        return {name: float(value) for name, value in samples.items() if re.search(r"_(total|count|sum|bucket)\b", name)}

    def grown(self, daemon: Daemon, before: dict[str, float]) -> dict[str, float]:
        """None went back or away."""
        now = self.counters(daemon)
        for name, value in before.items():
            self.assertGreaterEqual(now.get(name, -1), value, name)
        return now

    def test_memory_is_given_back(self) -> None:
        with self.daemon() as daemon:
            self.answer(daemon)
            daemon.moectl("unload")
            empty = self.resources(daemon)
            for _ in range(3):
                daemon.moectl("load")
                self.answer(daemon)
                self.assertGreater(self.resources(daemon)[0], empty[0])
                daemon.moectl("unload")
            again = self.resources(daemon)
            self.assertLess(again[0], empty[0] + MARGIN_BYTES)
            self.assertEqual(again[1:], empty[1:])

    def resources(self, daemon: Daemon) -> tuple[int, int, list[str]]:
        """Resident bytes, descriptors of files, names of threads that stay."""
        process = pathlib.Path("/proc") / str(daemon.pid)
        status = (process / "status").read_text()
        resident = int(re.search(r"VmRSS:\s+(\d+)", status)[1]) << 10  # type: ignore[index]
        names, files = list[str](), list[str]()
        for name in process.glob("task/*/comm"):
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has ended since it was listed
                names.append(name.read_text().strip())
        for name in process.glob("fd/*"):
            with contextlib.suppress(FileNotFoundError):  # likewise
                files.append(os.readlink(name))
        threads = sorted(name for name in names if not PASSING_THREADS.match(name))
        return resident, sum(1 for file in files if not file.startswith("socket:")), threads

    def test_running_requests_end_or_are_cancelled(self) -> None:
        with self.daemon("--backend", "scalar") as daemon:
            short = self.stream(daemon, "--max-new-tokens", 40)
            daemon.moectl("unload", "--drain-seconds", 100)
            error = short.communicate()[1]
            self.assertEqual(short.returncode, 0, error)
            daemon.moectl("load")
            long = self.stream(daemon, "--max-new-tokens", 1400)
            stopped = self.stream(daemon, "--max-new-tokens", 1400)
            stopped.send_signal(signal.SIGSTOP)  # a client that does not read
            daemon.moectl("load", self.other, "--replace", "--drain-seconds", 0)
            self.assertIn("the model was taken out before the answer was complete", long.communicate()[1])
            stopped.send_signal(signal.SIGKILL)
            stopped.communicate()
            self.answer(daemon)
            self.assertEqual(daemon.stop(), 0, daemon.log())

    def stuck(self, daemon: Daemon) -> Http2Client:
        """Eight streams were cut for being read too slowly, and their connection cannot be written to."""
        from moe.v1 import inference_pb2 as pb

        request = pb.GenerateRequest(text="Once upon a time")
        request.stopping.max_new_tokens = 1900
        request.stopping.ignore_eos = True
        request.response.logprobs = True
        request.response.top_logprobs = 20
        client = Http2Client(daemon.address, window=LARGEST_WINDOW, receive_buffer=2048)
        client.send(WINDOW_UPDATE, 0, 0, struct.pack(">I", LARGEST_WINDOW - 65535))
        for _ in range(8):
            client.call("/moe.v1.Inference/GenerateStream", request.SerializeToString())
        cut = 'moe_requests_total{code="CANCELLED",method="GenerateStream"} 8'
        wait_until(lambda: cut in metrics_of(daemon), "all streams to be cut", CALL_SECONDS)
        return client

    def test_who_takes_nothing_holds_neither_model_nor_daemon(self) -> None:
        sys.path.insert(0, str(self.generate_stubs()))
        with self.daemon("--kv-budget", "40MiB") as daemon:
            with contextlib.closing(self.stuck(daemon)):
                daemon.moectl("load", self.other, "--replace", "--drain-seconds", 0)
                self.assertIn("calls do not end that hold the model", daemon.log())
                self.answer(daemon)
            with contextlib.closing(self.stuck(daemon)):
                self.assertEqual(daemon.stop(), 0, daemon.log())
                self.assertNotIn("does not end", daemon.log().split("signal 15")[1])

    def test_what_cannot_be_loaded_leaves_what_is_there(self) -> None:
        outside = self.folder / "outside.moed"
        outside.write_bytes(self.store.read_bytes())
        (self.models / "link.moed").symlink_to(outside)
        (self.models / "folder").mkdir()
        os.mkfifo(self.models / "fifo.moed")
        damaged = self.models / "damaged.moed"
        damaged.write_bytes(self.store.read_bytes()[:10000])
        late = bytearray(self.store.read_bytes())  # found while the trunk is read
        header = daemon_trunk_offset(late)
        late[header] ^= 1
        (self.models / "late.moed").write_bytes(late)
        refused = {
            "../outside.moed": "outside of the server's --models-folder",
            str(outside): "outside of the server's --models-folder",
            "link.moed": "outside of the server's --models-folder",
            "/etc/shadow": "outside of the server's --models-folder",
            "nothing.moed": "no such file",
            "folder": "is no file",
            "fifo.moed": "is no file",
            "damaged.moed": "damaged.moed",
        }
        with self.daemon() as daemon:
            first = self.answer(daemon)
            for store, why in refused.items():
                self.assertIn(why, self.fails(daemon, "load", store, "--replace"), store)
            self.assertIn("at most the server's", self.fails(daemon, "load", "--replace", "--memory-budget", "65MiB"))
            too_small = self.fails(daemon, "load", "--replace", "--memory-budget", "2MiB")
            self.assertIn("the smallest budget that works", too_small)
            self.assertEqual(self.answer(daemon), first)
            self.assertIn("late.moed", self.fails(daemon, "load", "late.moed", "--replace"))
            self.assertIn("late.moed failed", daemon.json("info")["server"]["model_state"])
            daemon.moectl("load")
            self.assertEqual(self.answer(daemon), first)
        with self.running("--store", self.store, *BUDGET) as daemon:
            self.assertIn("the store of its start alone", self.fails(daemon, "load", self.other, "--replace"))
            daemon.moectl("load", self.store, "--replace")

    def test_what_the_model_before_left_behind_stops_nobody(self) -> None:
        learned, traces, trace = self.folder / "learned", self.folder / "traces", self.folder / "trace.json"
        flags = ("--learned-state", learned, "--record-routing", traces, "--trace", trace)
        kept = pathlib.Path(f"{trace}.3")
        kept.write_text("kept")
        with self.daemon(*flags) as daemon:
            for store in (self.other, self.store, self.store):
                self.answer(daemon)
                daemon.moectl("load", store, "--replace")
            self.answer(daemon)
            self.assertEqual(daemon.stop(), 0, daemon.log())
        self.assertEqual(len(list(self.folder.glob("learned*"))), 2, "a file for each model")
        for folder in (traces, traces / "2", traces / "3", traces / "4"):
            self.assertEqual(len((folder / "index.jsonl").read_text().splitlines()), 1, folder)
        for name in ("trace.json", "trace.json.2", "trace.json.4", "trace.json.5"):
            self.assertIn("traceEvents", (self.folder / name).read_text(), name)
        self.assertEqual(kept.read_text(), "kept")
        with self.running("--store", self.store, *BUDGET, "--learned-state", learned) as daemon:
            self.assertIn(f"taken up from {learned}", daemon.log())

    def test_what_does_not_fit_the_next_model_leaves_what_is_there(self) -> None:
        encoder = pack(self.binaries, self.binaries.parent / "checkpoints" / "switch_transformers", self.models / "encoder.moed")
        kept = self.folder / "kept"
        kept.mkdir()
        flags = ("--learned-state", kept / "learned", "--residency", kept / "residency")
        with self.daemon(*flags, "--kv-spill", self.folder, "--kv-spill-budget", "64MiB") as daemon:
            first = self.answer(daemon)
            self.assertIn("an encoder-decoder has no sessions", self.fails(daemon, "load", encoder.name, "--replace"))
            self.assertEqual(self.answer(daemon), first)
            daemon.moectl("load", self.other, "--replace")
            self.answer(daemon)
            daemon.moectl("load", self.store, "--replace")
            for name in ("learned", "residency"):
                (of_the_other,) = kept.glob(f"{name}.*")
                whole = of_the_other.read_bytes()
                of_the_other.write_bytes(b"damaged")
                self.assertIn(of_the_other.name, self.fails(daemon, "load", self.other, "--replace"))
                self.assertEqual(self.answer(daemon), first)
                of_the_other.write_bytes(whole)
            daemon.moectl("load", self.other, "--replace")

    def test_a_model_that_nobody_asked_keeps_its_file_from_the_next_one(self) -> None:
        residency = ("--residency", self.folder / "residency")
        with self.daemon(*residency) as daemon:
            daemon.moectl("load", self.other, "--replace")
            self.answer(daemon)
            self.assertEqual(daemon.stop(), 0, daemon.log())
        self.assertEqual(len(list(self.folder.glob("residency*"))), 2, "a file for each model")
        with self.daemon(*residency) as daemon:
            self.answer(daemon)

    def test_the_end_while_loading(self) -> None:
        with self.daemon("--read-rate", "1MB", "--io-queue-depth", 1) as daemon:
            daemon.moectl("unload")
            command = [daemon.binaries / "moectl", "--server", daemon.address, "load"]
            for end in ("unload", signal.SIGTERM):
                load = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
                assert load.stderr is not None
                while "reading" not in load.stderr.readline():
                    self.assertIsNone(load.poll())
                if end == "unload":
                    self.assertIn("cancelled", self.fails(daemon, "unload"))
                    self.assertIn("the load was cancelled by Control.UnloadModel", load.communicate()[1])
                else:
                    self.assertEqual(daemon.stop(), 0, daemon.log())
                    self.assertIn("the server is ending", load.communicate()[1])


def daemon_trunk_offset(store: bytearray) -> int:
    """A byte of the trunk: its end lies before the experts, in the first half of the file."""
    return len(store) // 8


if __name__ == "__main__":
    main()
