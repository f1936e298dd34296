"""What kill -9 costs: the first answer of a daemon that was killed and started again, beside that of the one before it, warm.

    python3 -m tests.chaos.warm_restart [--rounds 20] [--store STORE] [--tokens 32] [-- FLAGS OF MOED...]

Each round starts a daemon, lets it answer until its experts are in memory, times one more answer, has it write its residency and
kills it. It starts it twice again: once it times the first answer as soon as that is ready, once when what was kept is read. A
start without residency is the cold one. All of them alternate, so that what else the machine does meets all. Prompts are computed
each time. Figures are medians, and those of the ratios of each round."""

import argparse
import contextlib
import pathlib
import signal
import statistics
import tempfile
import time
from collections.abc import Iterator
from typing import Any

import grpc

from tests.chaos import protocol
from tests.chaos.patient import WAIT_SECONDS, request
from tools.daemon import DEFAULT_BINARIES, Daemon, pack_demo, running


def seconds_of_answer(stub: Any, tokens: int) -> float:
    begun = time.monotonic()
    stub.Generate(request(tokens), timeout=WAIT_SECONDS)
    return time.monotonic() - begun


def held_bytes(daemon: Daemon) -> int:
    """Of experts in memory."""
    with grpc.insecure_channel(daemon.address) as channel:
        state = protocol.ControlStub(channel).GetCacheState(protocol.control.GetCacheStateRequest(), timeout=WAIT_SECONDS)
    return int(state.bytes)


@contextlib.contextmanager
def connected(daemon: Daemon) -> Iterator[Any]:
    with grpc.insecure_channel(daemon.address, options=[("grpc.use_local_subchannel_pool", 1)]) as channel:
        grpc.channel_ready_future(channel).result(timeout=WAIT_SECONDS)
        yield protocol.InferenceStub(channel)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, default=DEFAULT_BINARIES)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--store", type=pathlib.Path, help="[the demo model's]")
    parser.add_argument("--tokens", type=int, default=32, help="of an answer [%(default)s]")
    parser.add_argument("flags", nargs="*", default=["--memory-budget", "12MiB", "--io-backend", "direct", "--threads", "1"])
    options = parser.parse_args()
    seconds: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        protocol.load(folder / "stubs")
        store = options.store or pack_demo(options.bin, folder, "q4", "q8")
        flags = ("--store", store, "--prefix-cache", "off", "--request-log", "off", *options.flags)
        kept = ("--residency", folder / "residency", "--learned-state", folder / "learned")

        def time_answer(what: str, stub: Any) -> None:
            seconds.setdefault(what, []).append(seconds_of_answer(stub, options.tokens))

        for _ in range(options.rounds):
            with running(options.bin, *flags, *kept) as daemon, connected(daemon) as stub:
                for _ in range(8):
                    seconds_of_answer(stub, options.tokens)
                time_answer("warm", stub)
                held = held_bytes(daemon)
                daemon.moectl("residency", "save")
                daemon.send_signal(signal.SIGKILL)
                daemon.wait(WAIT_SECONDS)
            with running(options.bin, *flags, *kept) as daemon, connected(daemon) as stub:
                time_answer("killed, at once", stub)
                daemon.send_signal(signal.SIGKILL)
                daemon.wait(WAIT_SECONDS)
            with running(options.bin, *flags, *kept) as daemon, connected(daemon) as stub:
                while held_bytes(daemon) < held:
                    daemon.check()
                time_answer("killed, once read", stub)
                daemon.send_signal(signal.SIGKILL)
                daemon.wait(WAIT_SECONDS)
            with running(options.bin, *flags) as daemon, connected(daemon) as stub:
                time_answer("cold", stub)
    for what, each in seconds.items():
        ratio = statistics.median(one / other for one, other in zip(each, seconds["warm"], strict=True))
        print(f"{what:18} {statistics.median(each) * 1000:7.1f} ms  {ratio:5.2f} x warm")


if __name__ == "__main__":
    main()
