"""The memory budget holds against any message: whatever clients send, leave open or do not read, the process stays below its
budget and the allowance, others are served meanwhile, and afterwards the memory is free again."""

import contextlib
import os
import resource
import ssl
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent import futures
from typing import Any, ClassVar

import grpc

from tests.authority import Authority
from tests.real_programs import RealProgramsTest, main, metrics_of
from tests.system.attacks import BUSY, ENCRYPTED, INFERENCE, KINDS, MIB, UNIX, WAIT_SECONDS, Attacker, Tls, open_channel
from tools.daemon import Daemon, pack_demo, running
from tools.server_process import wait_until

BUDGET = 24 * MIB
ALLOWANCE = 64 * MIB  # code, gRPC, allocator
LEFT_BEHIND = 16 * MIB  # in caches of the allocator and of gRPC, once everyone is gone

pb: Any = None  # made from proto/ when the tests begin
stubs: Any = None


class Witness:
    """An honest client, with a connection of its own, that tries again where it is told to."""

    def __init__(self, daemon: Daemon, tls: Tls | None):
        self._channel = open_channel(daemon.address, tls, [])
        self._stub = stubs.InferenceStub(self._channel)
        self._request = pb.GenerateRequest(text="Once upon a time", stopping=pb.Stopping(max_new_tokens=2, ignore_eos=True))

    def close(self) -> None:
        self._channel.close()

    def is_served(self) -> bool:
        try:
            return len(self._stub.Generate(self._request, timeout=WAIT_SECONDS).token_ids) == 2
        except grpc.RpcError as error:
            # gRPC cancels any call once it feels its quota (docs/reliability.md, limits).
            if error.code() in (*BUSY, grpc.StatusCode.CANCELLED):
                return False
            raise

    def served_until(self, done: threading.Event) -> int:
        """How often while the others are at work, once at least."""
        served = 0
        while served == 0 or not done.is_set():
            wait_until(self.is_served, "an answer", WAIT_SECONDS)
            served += 1
        return served


@contextlib.contextmanager
def attack(address: str, tls: Tls | None, kind: Callable[[Attacker], None]) -> Iterator[futures.Future[None]]:
    """The kind is under way, twice at once; what it opened is closed in the end."""
    attackers = [Attacker(address, tls) for _ in range(2)]
    with futures.ThreadPoolExecutor(1 + len(attackers)) as threads:

        def work() -> None:
            for attacking in [threads.submit(kind, attacker) for attacker in attackers]:
                attacking.result()

        try:
            yield threads.submit(work)
        finally:
            for attacker in attackers:
                attacker.close()


def setter(done: threading.Event) -> Callable[[object], None]:
    return lambda _: done.set()


class HostileTest(RealProgramsTest):
    tls: ClassVar[Tls | None] = None
    kinds: ClassVar[tuple[Callable[[Attacker], None], ...]] = KINDS
    holds_calls: ClassVar[bool] = True
    daemon: ClassVar[Daemon]

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        global pb, stubs
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, 8192)), hard))
        sys.path.insert(0, str(cls.generate_stubs()))
        from moe.v1 import inference_pb2 as pb
        from moe.v1 import inference_pb2_grpc as stubs

        store = pack_demo(cls.binaries, cls.folder, "q4", "q8")
        flags = ("--store", store, "--memory-budget", BUDGET, "--request-log", "/dev/null")
        cls.daemon = cls.enterClassContext(cls.serving(*flags))

    @classmethod
    def serving(cls, *flags: object) -> contextlib.AbstractContextManager[Daemon]:
        return running(cls.binaries, *flags)

    def attacked(self) -> str:
        """The address."""
        return self.daemon.address

    def peak_bytes(self) -> int:
        return self.daemon.memory_bytes("VmHWM")

    def begin_peak(self) -> None:
        """The kernel's high-water mark begins anew."""
        with open(f"/proc/{self.daemon.pid}/clear_refs", "w") as file:
            file.write("5")

    def descriptors(self) -> int:
        return len(os.listdir(f"/proc/{self.daemon.pid}/fd"))

    def test_no_message_breaks_the_budget(self) -> None:
        witness = Witness(self.daemon, self.tls)
        self.addCleanup(witness.close)
        for _ in range(20):
            wait_until(witness.is_served, "an answer", WAIT_SECONDS)
        resident, descriptors = self.daemon.memory_bytes("VmRSS") + LEFT_BEHIND, self.descriptors()
        for kind in self.kinds:
            with self.subTest(kind.__name__):
                self.begin_peak()
                done = threading.Event()
                with attack(self.attacked(), self.tls, kind) as work:
                    work.add_done_callback(setter(done))
                    witness.served_until(done)
                    work.result()
                self.assertLessEqual(self.peak_bytes() / MIB, (BUDGET + ALLOWANCE) / MIB)
                wait_until(lambda: self.descriptors() <= descriptors, "connections to close", WAIT_SECONDS)
                wait_until(lambda: self.daemon.memory_bytes("VmRSS") <= resident, "memory to be free again", WAIT_SECONDS)
        wait_until(witness.is_served, "an answer", WAIT_SECONDS)
        if self.holds_calls:
            self.hold_calls_open(witness)
            self.burst_into_calls(witness)
        self.assertEqual(self.daemon.stop(), 0, self.daemon.log())

    def hold_calls_open(self, witness: Witness) -> None:
        """By headers alone, on connections that never acknowledge how many may be open: the daemon ends the greediest."""
        resident = self.daemon.memory_bytes("VmRSS")
        self.begin_peak()
        attacker = Attacker(self.attacked(), self.tls)
        self.addCleanup(attacker.close)
        for _ in range(16):
            with contextlib.suppress(OSError):
                connection = attacker.connection()
                for _ in range(250):
                    connection.open_stream(INFERENCE + "Generate")
        wait_until(lambda: "calls are open" in self.daemon.log(), "connections to be closed", WAIT_SECONDS)
        none = 'moe_closed_connections_total{cause="too_much"} 0\n'
        wait_until(lambda: none not in metrics_of(self.daemon), "closed connections to be counted", WAIT_SECONDS)
        wait_until(lambda: self.daemon.memory_bytes("VmRSS") <= resident + LEFT_BEHIND, "memory to be free again", WAIT_SECONDS)
        self.assertLessEqual(self.peak_bytes() / MIB, (BUDGET + ALLOWANCE) / MIB)
        wait_until(witness.is_served, "an answer beside them", WAIT_SECONDS)

    def burst_into_calls(self, witness: Witness) -> None:
        """More of them at once than it could look at between two: nobody reads on before it has looked."""
        resident = self.daemon.memory_bytes("VmRSS")
        self.begin_peak()
        attacker = Attacker(self.attacked(), self.tls)
        self.addCleanup(attacker.close)

        def send() -> None:
            with contextlib.suppress(OSError):  # closed by the server
                attacker.connection().open_streams(INFERENCE + "Generate", 1000)

        attacker.at_once(send, 64)
        self.assertLessEqual(self.peak_bytes() / MIB, (BUDGET + ALLOWANCE) / MIB)
        wait_until(lambda: self.daemon.memory_bytes("VmRSS") <= resident + LEFT_BEHIND, "memory to be free again", WAIT_SECONDS)
        wait_until(witness.is_served, "an answer beside them", WAIT_SECONDS)


class HostileUnixTest(HostileTest):
    """Over a unix socket, beside the one that others are served at."""

    kinds = UNIX
    holds_calls = False

    @classmethod
    def serving(cls, *flags: object) -> contextlib.AbstractContextManager[Daemon]:
        return running(cls.binaries, *flags, "--control-listen", f"unix:{cls.folder}/control")

    def attacked(self) -> str:
        return f"unix:{self.folder}/control"


class HostileTlsTest(HostileTest):
    """Clients have certificates, which is what takes the most memory."""

    kinds = ENCRYPTED

    @classmethod
    def serving(cls, *flags: object) -> contextlib.AbstractContextManager[Daemon]:
        authority = Authority(cls.folder, "authority")
        server, client = authority.issue("server"), authority.issue("client")
        context = ssl.create_default_context(cafile=authority.certificate)
        context.load_cert_chain(client.certificate, client.key)
        context.set_alpn_protocols(["h2"])
        contents = (path.read_bytes() for path in (authority.certificate, client.key, client.certificate))
        cls.tls = Tls(context, grpc.ssl_channel_credentials(*contents))
        own = ("--tls-cert", server.certificate, "--tls-key", server.key, "--tls-client-ca", authority.certificate)
        known = ("--tls-ca", authority.certificate, "--tls-cert", client.certificate, "--tls-key", client.key)
        return running(cls.binaries, *flags, *own, client=known)


if __name__ == "__main__":
    main()
