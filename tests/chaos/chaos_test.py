"""The daemon does not fall over. Clients, disks, clocks and signals misbehave; after each of them no request runs, descriptors,
threads and memory are where they were, and the next answer has the same bits.

A short run by itself. CHAOS=long repeats everything many times, opens 10,000 connections and waits for what takes half a minute:
    CHAOS=long python3 -m tests.chaos.chaos_test"""

import contextlib
import errno
import itertools
import json
import os
import pathlib
import resource
import signal
import socket
import struct
import subprocess
import sys
import threading
import unittest
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import grpc

from tests.chaos.faults import Fault, Faults
from tests.real_programs import RealProgramsTest, main
from tests.system.http2_client import DATA, RST_STREAM, Http2Client, message
from tools.daemon import Daemon, pack_demo, running
from tools.server_process import ServerProcess, wait_until

LONG = os.environ.get("CHAOS") == "long"
TIMES = 10 if LONG else 1
WAIT_SECONDS = 120
MIB = 1 << 20
BUDGET = 12 * MIB
ALLOWANCE = 64 * MIB
LEFT_BEHIND = (16 if LONG else 8) * MIB  # in caches of the allocator and of gRPC
POOLED = 4 * (os.cpu_count() or 1) + 8  # threads that gRPC keeps once it had work for them
PROMPT = "Once upon a time there was a little"
LONG_PROMPT = "The old king said to his daughter that the sea was wide. " * 12
LATE_NANOS = 3_000_000  # of each read, so that an answer of many tokens takes seconds
TCP_REPAIR = 19  # a socket that is closed in this mode says nothing to its peer
# Half the experts fit, so that there are reads all the time.
FLAGS = ("--memory-budget", BUDGET, "--kv-budget", "2MiB", "--io-backend", "buffered", "--verify-reads", "always", "--threads", 1)

OK, CANCELLED, DEADLINE = grpc.StatusCode.OK, grpc.StatusCode.CANCELLED, grpc.StatusCode.DEADLINE_EXCEEDED
UNAVAILABLE, DATA_LOSS = grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DATA_LOSS

pb: Any = None  # made from proto/ when the tests begin
control_pb: Any = None
stubs: Any = None
control_stubs: Any = None


def request(new_tokens: int, text: str = PROMPT) -> Any:
    return pb.GenerateRequest(
        text=text,
        sampling=pb.Sampling(temperature=0),
        stopping=pb.Stopping(max_new_tokens=new_tokens, ignore_eos=True),
        response=pb.ResponseOptions(logprobs=True),
    )


def eventually(condition: Callable[[], bool], what: str) -> None:
    wait_until(condition, what, WAIT_SECONDS)


class Patient:
    """A daemon, what it was like while it was well, and whether it is so again."""

    def __init__(self, daemon: Daemon):
        self.daemon = daemon
        self.process = pathlib.Path(f"/proc/{daemon.pid}")
        self._channels: list[grpc.Channel] = []
        channel = self.channel()
        self.inference = stubs.InferenceStub(channel)
        self.control = control_stubs.ControlStub(channel)
        for _ in range(8):
            self.answer()
        self.well = self.answer()
        self.descriptors, self.threads, self.resident = self.open_descriptors(), self.running_threads(), self.resident_bytes()

    def close(self) -> None:
        for channel in self._channels:
            channel.close()
        self._channels.clear()

    def channel(self) -> grpc.Channel:
        """A connection of its own."""
        options = [("grpc.use_local_subchannel_pool", 1), ("grpc.enable_retries", 0)]
        channel = grpc.insecure_channel(self.daemon.address, options=options)
        self._channels.append(channel)
        return channel

    def close_channels_but_first(self) -> None:
        for channel in self._channels[1:]:
            channel.close()
        del self._channels[1:]

    def answer(self) -> list[tuple[int, float]]:
        answer = self.inference.Generate(request(24), timeout=WAIT_SECONDS)
        return [(token.token_id, token.logprob) for token in answer.logprobs]

    def stats(self) -> Any:
        asked = control_pb.GetStatsRequest()
        asked.window.nanos = 1
        return self.control.GetStats(asked, timeout=WAIT_SECONDS)

    def idle(self) -> bool:
        stats = self.stats()
        return bool(stats.running == 0 and stats.waiting == 0)

    def ticked(self) -> bool:
        """What is sampled each second was sampled anew."""
        first = self.stats().window_seconds  # since the last sample
        eventually(lambda: self.stats().window_seconds < first, "the ticker to tick")
        return True

    def open_descriptors(self) -> int:
        return len(list((self.process / "fd").iterdir()))

    def running_threads(self) -> int:
        return len(list((self.process / "task").iterdir()))

    def resident_bytes(self) -> int:
        return self.daemon.memory_bytes("VmRSS")

    def limit(self, which: int, value: int) -> None:
        """Of its resources, while it runs; -1: none."""
        resource.prlimit(self.daemon.pid, which, (value, resource.prlimit(self.daemon.pid, which)[1]))

    def check(self) -> None:
        self.daemon.check()
        eventually(self.idle, "every request to end")
        assert self.answer() == self.well, "other bits than before"
        eventually(lambda: self.open_descriptors() <= self.descriptors, "descriptors to be closed")
        eventually(lambda: self.running_threads() <= self.threads + POOLED, "threads to end")
        eventually(lambda: self.resident_bytes() <= self.resident + LEFT_BEHIND, "memory to be free again")
        assert self.daemon.memory_bytes("VmHWM") <= BUDGET + ALLOWANCE


class ChaosTest(RealProgramsTest):
    store: ClassVar[pathlib.Path]
    faults: ClassVar[Faults]
    patient: ClassVar[Patient]  # what most scenarios share
    request_log: ClassVar[pathlib.Path]

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        global pb, control_pb, stubs, control_stubs
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        sys.path.insert(0, str(cls.generate_stubs()))
        from moe.v1 import control_pb2 as control_pb
        from moe.v1 import control_pb2_grpc as control_stubs
        from moe.v1 import inference_pb2 as pb
        from moe.v1 import inference_pb2_grpc as stubs

        cls.store = pack_demo(cls.binaries, cls.folder, "q4", "q8")
        cls.faults = Faults(cls.binaries.parent / "tests" / "libmoed_chaos_faults.so", cls.folder / "faults")
        cls.addClassCleanup(cls.faults.close)
        cls.request_log = cls.folder / "requests.jsonl"
        flags = ("--max-running", 2, "--queue-capacity", 8, "--request-log", cls.request_log)
        cls.patient = cls.enterClassContext(cls.well(*flags))

    @classmethod
    @contextlib.contextmanager
    def well(cls, *flags: object) -> Iterator[Patient]:
        """A daemon that is well, and ends well unless it has ended."""
        with cls.serving(*flags) as daemon:
            patient = Patient(daemon)
            try:
                yield patient
                if daemon.running():
                    code = daemon.stop()
                    assert code == 0, daemon.log()
            finally:
                patient.close()

    @classmethod
    def serving(cls, *flags: object) -> contextlib.AbstractContextManager[Daemon]:
        return running(cls.binaries, "--store", cls.store, *FLAGS, *flags, environment=cls.faults.environment)

    def tearDown(self) -> None:
        self.faults.end()
        self.faults.set_wall_clock(0)

    # Clients

    def test_a_thousand_calls_that_are_opened_and_cancelled(self) -> None:
        channels = [stubs.InferenceStub(self.patient.channel()) for _ in range(20)]
        for begin in range(0, 1000 * TIMES, 100):
            calls = []
            for i in range(begin, begin + 100):
                calls.append(channels[i % 20].GenerateStream(request(200, LONG_PROMPT if i % 3 else PROMPT)))
            for i, call in enumerate(calls):
                if i % 20 == 0:
                    with contextlib.suppress(grpc.RpcError):  # the queue may be full
                        next(call)
                call.cancel()
        self.patient.close_channels_but_first()
        self.patient.check()

    def test_clients_that_are_killed_or_stopped_while_they_are_answered(self) -> None:
        self.faults.begin(Fault.LATE, LATE_NANOS)
        command = [str(self.binaries / "moectl"), "--server", self.patient.daemon.address, "generate", "--prompt", PROMPT]
        command += ["--max-new-tokens", "400", "--ignore-eos"]
        for _ in range(TIMES):
            clients = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, bufsize=0) for _ in range(4)]
            for number, client in enumerate(clients):
                assert client.stdout is not None
                if number < 2:  # so many are answered at once
                    client.stdout.read(1)
                client.send_signal(signal.SIGSTOP if number % 2 else signal.SIGKILL)
            for client in clients:
                client.kill()  # a stopped one, too
                client.communicate()
            self.patient.check()

    def test_connections_that_end_in_the_middle(self) -> None:
        def half_a_frame(client: Http2Client) -> None:
            client.socket.sendall(b"\0\x40\0" + bytes([DATA, 0]) + struct.pack(">I", 1) + b"x" * 100)

        def half_a_message(client: Http2Client) -> None:
            stream = client.open_stream("/moe.v1.Inference/GenerateStream")
            client.send_data(stream, message(b"x" * 100, announced=3_000_000), end=False)

        def a_call_and_half_a_connection(client: Http2Client) -> None:
            client.call("/moe.v1.Inference/GenerateStream", request(400).SerializeToString())
            client.socket.shutdown(socket.SHUT_WR)

        def a_call(client: Http2Client) -> None:
            client.call("/moe.v1.Inference/GenerateStream", request(400).SerializeToString())

        def a_call_that_is_reset(client: Http2Client) -> None:
            stream = client.call("/moe.v1.Inference/GenerateStream", request(400).SerializeToString())
            client.send(RST_STREAM, 0, stream, struct.pack(">I", 8))

        for _ in range(10 * TIMES):
            for say in (half_a_frame, half_a_message, a_call_and_half_a_connection, a_call, a_call_that_is_reset):
                client = Http2Client(self.patient.daemon.address)
                say(client)
                client.close()
        self.patient.check()

    def test_readers_that_do_not_read(self) -> None:
        clients = [Http2Client(self.patient.daemon.address, window=0) for _ in range(4 * TIMES)]
        for client in clients:
            client.call("/moe.v1.Inference/GenerateStream", request(200).SerializeToString())
        self.assertEqual(self.patient.answer(), self.patient.well)  # beside them
        for client in clients:
            client.close()
        self.patient.check()

    @unittest.skipUnless(LONG and os.geteuid() == 0, "long")
    def test_peers_that_vanish_without_a_word(self) -> None:
        """As when the network goes: they are given up within half a minute or so. TCP_REPAIR needs CAP_NET_ADMIN."""
        self.faults.begin(Fault.LATE, LATE_NANOS)
        for _ in range(8):
            client = Http2Client(self.patient.daemon.address)
            client.call("/moe.v1.Inference/GenerateStream", request(400).SerializeToString())
            client.socket.setsockopt(socket.IPPROTO_TCP, TCP_REPAIR, 1)
            client.close()
        self.patient.check()

    def test_deadlines_that_pass_in_the_queue_in_a_prompt_and_in_an_answer(self) -> None:
        self.faults.begin(Fault.LATE, LATE_NANOS)
        for _ in range(TIMES):
            answered = [self.patient.inference.GenerateStream(request(400)) for _ in range(2)]
            for call in answered:
                next(call)
            queued = self.patient.inference.GenerateStream(request(4), timeout=0.1)
            # At once where the queue is known to be too long, else when it has passed.
            self.assertIn(queued.code(), (DEADLINE, grpc.StatusCode.RESOURCE_EXHAUSTED))
            for call in answered:
                call.cancel()
            eventually(self.patient.idle, "these to end")
            in_prompt = self.patient.inference.GenerateStream(request(4, LONG_PROMPT), timeout=0.02)
            self.assertEqual(in_prompt.code(), DEADLINE)
            in_answer = self.patient.inference.GenerateStream(request(400), timeout=0.4)
            with self.assertRaises(grpc.RpcError):
                self.assertGreater(len(list(in_answer)), 0)
            self.assertEqual(in_answer.code(), DEADLINE)
        self.faults.end()
        self.patient.check()
        # The daemon knows them for what they were.
        lines = [json.loads(line) for line in self.request_log.read_text().splitlines()]
        self.assertIn("DEADLINE_EXCEEDED", {line["code"] for line in lines[-20:]})

    def test_many_connections(self) -> None:
        address = self.patient.daemon.address.rsplit(":", 1)
        opened = []
        for _ in range(10_000 if LONG else 700):
            with contextlib.suppress(OSError):
                opened.append(socket.create_connection((address[0], int(address[1])), timeout=5))
        self.assertEqual(self.patient.answer(), self.patient.well)  # beside them
        # 512 by default, and one that is being refused.
        self.assertLessEqual(self.patient.open_descriptors(), self.patient.descriptors + 512 + 1)
        for connection in opened:
            connection.close()
        self.patient.check()

    def test_no_descriptors_are_left(self) -> None:
        highest = max(int(entry.name) for entry in (self.patient.process / "fd").iterdir())
        before = resource.prlimit(self.patient.daemon.pid, resource.RLIMIT_NOFILE)
        for spare in range(3 * TIMES):
            self.patient.limit(resource.RLIMIT_NOFILE, highest + 1 + spare % 8)
            clients = []
            for _ in range(spare % 8 + 3):
                with contextlib.suppress(OSError):
                    clients.append(Http2Client(self.patient.daemon.address))
            self.assertEqual(self.patient.answer(), self.patient.well)  # who was there is served
            for client in clients:
                client.close()
            self.patient.limit(resource.RLIMIT_NOFILE, before[0])
            self.patient.check()

    # Storage

    def code_of_answer(self) -> tuple[grpc.StatusCode, str]:
        try:
            self.patient.inference.Generate(request(24), timeout=WAIT_SECONDS)
            return OK, ""
        except grpc.RpcError as error:
            return error.code(), error.details()

    def until_struck(self) -> tuple[grpc.StatusCode, str]:
        """What becomes of the first request that fails, of which there is one once something has to be read."""
        return wait_until(lambda: None if (got := self.code_of_answer())[0] == OK else got, "a request to fail", WAIT_SECONDS)

    def test_reads_that_go_wrong(self) -> None:
        kinds = (
            (Fault.ERROR, errno.EIO, DATA_LOSS, "Input/output error"),
            (Fault.ERROR, errno.ESTALE, DATA_LOSS, "Stale file handle"),
            (Fault.END_OF_FILE, 0, DATA_LOSS, "ends early"),
            (Fault.TORN, 0, DATA_LOSS, "is damaged"),
            (Fault.FLIPPED, 0, DATA_LOSS, "is damaged"),
        )
        for _, (fault, value, code, words) in itertools.product(range(TIMES), kinds):
            with self.subTest(fault.name, value=value):
                with self.faults.during(fault, value):
                    self.assertEqual((got := self.until_struck())[0], code, got)
                    self.assertIn(words, got[1])
                    self.assertGreater(self.faults.struck(), 0)
                self.patient.check()

    def test_reads_that_are_only_slow_or_in_pieces_change_nothing(self) -> None:
        for fault, value in ((Fault.SHORT, 0), (Fault.LATE, 500_000), (Fault.ERROR, errno.EINTR)):
            with self.subTest(fault.name):
                if value == errno.EINTR:  # again and again would be for ever
                    thread = threading.Timer(0.05, self.faults.end)
                    thread.start()
                with self.faults.during(fault, value):
                    self.assertEqual(self.patient.answer(), self.patient.well)
                self.patient.check()

    def test_a_read_that_hangs_holds_nobody_longer_than_itself(self) -> None:
        with self.faults.during(Fault.HELD):
            calls = [self.patient.inference.GenerateStream(request(60, LONG_PROMPT)) for _ in range(2)]
            eventually(lambda: self.faults.struck() > 0, "a read to hang")
            calls[0].cancel()
            self.assertEqual(calls[0].code(), CANCELLED)  # the client is told at once
            self.assertTrue(self.patient.stats().running >= 0)  # Control answers
        self.assertEqual([message.HasField("finish") for message in calls[1]][-1], True)
        self.patient.check()

    def test_the_store_is_cut_short_and_made_whole_and_unlinked(self) -> None:
        whole = self.store.read_bytes()
        for keep in (0.6, 0.0)[: None if LONG else 1]:
            os.truncate(self.store, int(len(whole) * keep))
            code, words = self.until_struck()
            self.assertEqual(code, DATA_LOSS)
            self.assertIn("ends early", words)
            with self.store.open("r+b") as file:
                file.write(whole)
            self.patient.check()
        aside = self.store.with_suffix(".aside")
        aside.write_bytes(whole)
        self.store.unlink()
        self.patient.check()
        aside.rename(self.store)

    def test_a_full_disk_keeps_nobody_from_an_answer(self) -> None:
        self.patient.limit(resource.RLIMIT_FSIZE, self.request_log.stat().st_size)
        self.assertEqual(self.patient.answer(), self.patient.well)
        self.patient.check()
        self.patient.limit(resource.RLIMIT_FSIZE, resource.RLIM_INFINITY)
        before = self.request_log.stat().st_size
        self.patient.answer()
        eventually(lambda: self.request_log.stat().st_size > before, "lines again")

    def test_a_full_disk_at_the_end_is_named_and_leaves_what_was_there(self) -> None:
        folder = self.folder / "full"
        folder.mkdir()
        learned, residency, trace, routing = (folder / name for name in ("learned", "residency", "trace", "routing"))
        kept = ("--learned-state", learned, "--residency", residency)
        with self.serving(*kept) as daemon:
            daemon.moectl("generate", "--prompt", PROMPT, "--max-new-tokens", 4)
            self.assertEqual(daemon.stop(), 0, daemon.log())
        before = [learned.read_bytes(), residency.read_bytes()]
        with self.serving(*kept, "--trace", trace, "--record-routing", routing) as daemon:
            daemon.moectl("generate", "--prompt", LONG_PROMPT, "--max-new-tokens", 200, "--ignore-eos")
            resource.prlimit(daemon.pid, resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
            self.assertEqual(daemon.stop(), 1, daemon.log())
            self.assertRegex(daemon.log(), r"moed: --trace: cannot write")
            for name in ("--learned-state", "--residency", "--record-routing"):
                self.assertIn(name, daemon.log())
        self.assertEqual([learned.read_bytes(), residency.read_bytes()], before)
        self.assertEqual(sorted(path.name for path in folder.iterdir() if "partial" in path.name), [])

    # Clocks

    def test_the_wall_clock_jumps(self) -> None:
        year = 365 * 24 * 3600
        for ahead in (year, -year, 3600, -3600, 0) if LONG else (year, 0):
            with self.subTest(ahead=ahead):
                call = self.patient.inference.GenerateStream(request(40))
                cancelled = self.patient.inference.GenerateStream(request(400), timeout=WAIT_SECONDS)
                next(call)
                next(cancelled)
                self.faults.set_wall_clock(ahead)
                self.assertTrue(list(call)[-1].HasField("finish"))
                cancelled.cancel()
                self.patient.check()
                self.assertTrue(self.patient.ticked())
        for line in self.request_log.read_text().splitlines()[-6:]:
            self.assertLess(json.loads(line)["duration_seconds"], WAIT_SECONDS)
            self.assertNotEqual(json.loads(line)["code"], "DEADLINE_EXCEEDED", line)

    # Signals and ends. Each daemon has faults of its own.

    def own_faults(self) -> Faults:
        faults = Faults(self.binaries.parent / "tests" / "libmoed_chaos_faults.so", self.folder / "own_faults")
        self.addCleanup(faults.close)
        return faults

    def started(self, faults: Faults, *flags: object, within: int | None = None) -> ServerProcess:
        """Not ready yet, nor perhaps ever. `within`: bytes of address space."""
        limits = [f"--as={within}"] if within else []
        own = ("--store", self.store, *FLAGS, *flags, "--listen", "127.0.0.1:0", "--metrics-listen", "off")
        command = ["prlimit", *limits, str(self.binaries / "moed"), *map(str, own)]
        process = ServerProcess(command, {**os.environ, "MOED_DRAIN_DELAY_SECONDS": "0", **faults.environment})
        self.addCleanup(process.close)
        return process

    def test_signals_while_the_model_is_loaded(self) -> None:
        faults = self.own_faults()
        for last in (signal.SIGTERM, signal.SIGINT, None):
            with self.subTest(last=last):
                faults.begin(Fault.HELD, MIB)  # the weights; header and tokenizer are smaller
                process = self.started(faults)
                eventually(lambda: faults.struck() > 0, "the weights to be read")
                process.send_signal(signal.SIGHUP)
                process.wait_for_line("(nothing to read anew)")
                if last is not None:
                    process.send_signal(last)
                    self.assertEqual(process.wait(WAIT_SECONDS), 128 + last, process.log())
                    continue
                faults.end()
                process.wait_for_line("(ready: )")
                self.assertEqual(process.stop(), 0, process.log())

    def test_signals_while_requests_wait_and_are_read_and_answered(self) -> None:
        self.faults.begin(Fault.LATE, LATE_NANOS)
        with self.well("--max-running", 1, "--drain-seconds", 600) as patient:
            answered = patient.inference.GenerateStream(request(60))
            next(answered)
            queued = patient.inference.GenerateStream(request(4, LONG_PROMPT))
            eventually(lambda: patient.stats().waiting == 1, "one to wait")
            for number in (signal.SIGHUP, signal.SIGTERM, signal.SIGHUP):
                patient.daemon.send_signal(number)
            eventually(lambda: "draining" in patient.daemon.log(), "the drain")
            for call in (answered, queued):
                self.assertTrue(list(call)[-1].HasField("finish"))
            self.assertEqual(patient.daemon.wait(WAIT_SECONDS), 0, patient.daemon.log())

    def test_a_second_signal_ends_what_hangs(self) -> None:
        with self.well("--drain-seconds", 0) as patient:
            self.faults.begin(Fault.HELD)
            call = patient.inference.GenerateStream(request(60, LONG_PROMPT))
            eventually(lambda: self.faults.struck() > 0, "a read to hang")
            patient.daemon.send_signal(signal.SIGTERM)
            eventually(lambda: "drain limit reached" in patient.daemon.log(), "the drain to end")
            patient.daemon.send_signal(signal.SIGTERM)
            self.assertEqual(patient.daemon.wait(WAIT_SECONDS), 128 + signal.SIGTERM)
            self.assertEqual(call.code(), UNAVAILABLE)

    def test_after_sigkill_it_starts_with_what_was_kept(self) -> None:
        folder = self.folder / "killed"
        folder.mkdir()
        kept = ("--learned-state", folder / "learned", "--residency", folder / "residency")
        with self.well(*kept) as patient:
            well = patient.well
        before = {path.name: path.read_bytes() for path in folder.iterdir()}
        self.assertEqual(set(before), {"learned", "residency"})
        for _ in range(TIMES):
            with self.well(*kept) as patient:
                self.assertEqual(patient.well, well)
                next(patient.inference.GenerateStream(request(200)))
                patient.daemon.send_signal(signal.SIGKILL)
                self.assertEqual(patient.daemon.wait(WAIT_SECONDS), -signal.SIGKILL)
            self.assertEqual((folder / "learned").read_bytes(), before["learned"])

    # Memory

    def ends_by_itself(self, process: ServerProcess) -> bool:
        """False: it serves. Its end has a reason and is no crash."""

        def served_or_ended() -> str | None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                return f"ended {process.wait(0)}"
            return "serves" if "ready: " in process.log() else None

        how = wait_until(served_or_ended, "it to serve or to end", WAIT_SECONDS)
        if how == "serves":
            self.assertEqual(process.stop(), 0, process.log())
            return False
        self.assertEqual(how, "ended 1", process.log())
        self.assertRegex(process.log(), r"(?m)^moed: .*memory", process.log())
        return True

    def test_no_memory_at_any_of_its_mappings(self) -> None:
        faults = self.own_faults()
        for number in itertools.count():
            faults.refuse_mapping(number)
            with self.subTest(mapping=number):
                ended = self.ends_by_itself(self.started(faults))
            if not faults.refused():
                self.assertFalse(ended)
                self.assertGreater(number, 3)
                return

    @unittest.skipUnless(LONG, "long")
    def test_no_address_space_for_it(self) -> None:
        """From where its libraries fit to where it serves: memory, or a thread's stack, is short at one place or another."""
        least, enough = 64 * MIB, 0
        faults = self.own_faults()
        process = self.started(faults)
        process.wait_for_line("(ready: )")
        enough = process.memory_bytes("VmPeak")
        process.stop()
        served = []
        step = (enough - least) // (400 if LONG else 10)
        for limit in range(least, enough + 2 * step, step):
            with self.subTest(limit=limit):
                served.append(not self.ends_by_itself(self.started(faults, within=limit)))
        self.assertEqual((served[0], served[-1]), (False, True))


if __name__ == "__main__":
    main()
