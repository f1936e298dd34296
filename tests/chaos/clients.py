"""Clients that cancel, are killed, stop, vanish, do not read or are too many."""

import contextlib
import json
import os
import resource
import signal
import socket
import struct
import subprocess
import unittest

import grpc

from tests.chaos import protocol
from tests.chaos.faults import Fault
from tests.chaos.patient import DEADLINE, LATE_NANOS, LONG, LONG_PROMPT, MIB, PROMPT, TIMES, eventually, request
from tests.chaos.scenarios import Scenarios
from tests.system.http2_client import DATA, RST_STREAM, Http2Client, message

TCP_REPAIR = 19  # a socket that is closed in this mode says nothing to its peer


class Clients(Scenarios):
    def open_and_cancel(self, times: int) -> None:
        channels = [protocol.InferenceStub(self.patient.channel()) for _ in range(20)]
        for begin in range(0, times, 100):
            calls = []
            for i in range(begin, begin + 100):
                calls.append(channels[i % 20].GenerateStream(request(200, LONG_PROMPT if i % 3 else PROMPT)))
            for i, call in enumerate(calls):
                if i % 20 == 0:
                    with contextlib.suppress(grpc.RpcError):  # the queue may be full
                        next(call)
                call.cancel()
        self.patient.close_channels_but_first()

    def test_a_thousand_calls_that_are_opened_and_cancelled(self) -> None:
        self.open_and_cancel(1000 * TIMES)
        self.patient.check()

    def test_clients_that_are_killed_or_stopped_while_they_are_answered(self) -> None:
        self.faults.begin(Fault.LATE, LATE_NANOS)
        command = [str(self.binaries / "moectl"), "--server", self.patient.daemon.address, "generate", "--prompt", PROMPT]
        command += ["--max-new-tokens", "400", "--ignore-eos"]
        for _ in range(TIMES):
            clients: list[subprocess.Popen[bytes]] = []
            for number in range(4):
                client = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, bufsize=0)
                clients.append(client)
                assert client.stdout is not None
                if number < 2:  # so many are answered at once; the others wait
                    client.stdout.read(1)
            for number, client in enumerate(clients):
                client.send_signal(signal.SIGSTOP if number % 2 else signal.SIGKILL)
            self.wait_for_tokens(16)  # for a client that is stopped
            for client in clients:
                client.kill()  # a stopped one, too
                client.communicate()
            self.patient.check()

    def wait_for_tokens(self, more: int) -> None:
        wanted = self.patient.stats().generated_tokens + more
        eventually(lambda: self.patient.stats().generated_tokens >= wanted, "an answer to go on")

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
            in_answer = self.patient.inference.GenerateStream(request(400), timeout=1)
            next(in_answer)
            with self.assertRaises(grpc.RpcError):
                list(in_answer)
            self.assertEqual(in_answer.code(), DEADLINE)
        self.faults.end()
        self.patient.check()
        # The daemon knows them for what they were.
        lines = [json.loads(line) for line in self.request_log.read_text().splitlines()]
        self.assertIn("DEADLINE_EXCEEDED", {line["code"] for line in lines[-20:]})

    def open_connections(self, times: int) -> None:
        address = self.patient.daemon.address.rsplit(":", 1)
        opened = []
        for _ in range(times):
            with contextlib.suppress(OSError):
                opened.append(socket.create_connection((address[0], int(address[1])), timeout=5))
        self.assertEqual(self.patient.answer(), self.patient.well)  # beside them
        # 512 by default, and one that is being refused.
        self.assertLessEqual(self.patient.open_descriptors(), self.patient.descriptors + 512 + 1)
        for connection in opened:
            connection.close()

    def test_many_connections(self) -> None:
        self.open_connections(10_000 if LONG else 700)
        self.patient.check()

    @unittest.skipUnless(LONG, "long")
    def test_what_many_leave_behind_does_not_add_up(self) -> None:
        after = []
        for _ in range(8):
            self.open_and_cancel(10_000)
            self.open_connections(10_000)
            self.patient.check()
            self.assertTrue(self.patient.ticked())  # what is free was given back
            after.append(self.patient.resident_bytes() / MIB)
        self.assertLess(max(after[2:]), after[1] + 4, after)

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
