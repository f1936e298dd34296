"""The demo model in the real daemon, streams of its answers, and what it tells of itself."""

import contextlib
import pathlib
import re
import sys
from collections.abc import Callable
from typing import Any, ClassVar

import grpc

from tests.real_programs import RealProgramsTest, metrics_of
from tools.daemon import Daemon, pack_demo
from tools.server_process import wait_until

inference_pb2: Any = None  # both made from proto/ when the tests begin
inference_pb2_grpc: Any = None
PROMPT = "Once upon a time there was a little"
# Scalar kernels make the demo model slow: a long answer takes seconds, whatever the machine.
SLOW = ("--memory-budget", "64MiB", "--backend", "scalar", "--threads", 1)
WAIT_SECONDS = 300


def eventually(condition: Callable[[], bool], what: str) -> None:
    wait_until(condition, what, WAIT_SECONDS)


def request(new_tokens: int) -> Any:
    return inference_pb2.GenerateRequest(
        text=PROMPT,
        sampling=inference_pb2.Sampling(temperature=0),
        stopping=inference_pb2.Stopping(max_new_tokens=new_tokens, ignore_eos=True),
    )


class Stream:
    """A stream on a connection of its own."""

    def __init__(self, daemon: Daemon, new_tokens: int):
        self.channel = grpc.insecure_channel(daemon.address, options=[("grpc.use_local_subchannel_pool", 1)])
        self.call = inference_pb2_grpc.InferenceStub(self.channel).GenerateStream(request(new_tokens))
        self.tokens = 0
        self.finish: Any = None

    def read(self) -> None:
        """Reads one message."""
        message = next(self.call)
        self.tokens += len(message.token_ids)
        if message.HasField("finish"):
            self.finish = message.finish

    def read_all(self) -> grpc.StatusCode:
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

    def cancel(self) -> None:
        self.call.cancel()
        self.channel.close()


def stats(daemon: Daemon) -> dict[str, Any]:
    held: dict[str, Any] = daemon.json("stats")["stats"]
    return held


def idle(daemon: Daemon) -> bool:
    now = stats(daemon)
    return bool(now["running"] == 0 and now["waiting"] == 0)


def metric(daemon: Daemon, sample: str) -> float:
    found = re.search(rf"^{re.escape(sample)} (\S+)$", metrics_of(daemon), re.M)
    assert found, f"no metric {sample}"
    return float(found.group(1))


class DaemonTestCase(RealProgramsTest):
    store: ClassVar[pathlib.Path]

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        global inference_pb2, inference_pb2_grpc
        cls.store = pack_demo(cls.binaries, cls.folder, "q8", "q8")
        sys.path.insert(0, str(cls.generate_stubs()))
        from moe.v1 import inference_pb2, inference_pb2_grpc

    def serving(self, *flags: object) -> contextlib.AbstractContextManager[Daemon]:
        return self.running("--store", self.store, *flags)
