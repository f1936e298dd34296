"""moed as its users meet it: the daemon, spoken to through gRPC."""

import hashlib
import os
import re
import time
from collections.abc import Sequence
from typing import Any

import grpc

from tools.server_process import ServerError, ServerProcess

from . import CompareError
from .server import Answer, Counters, Fidelity, OnToken, Request

# What the process may need beside --memory-budget (docs/architecture.md, "Memory").
BESIDE_BUDGET_BYTES = 64 << 20
STOP_SECONDS, BUSY_SECONDS, POLL_SECONDS = 10, 10, 0.01


def check_program(path: str, flag: str) -> str:
    if not os.access(path, os.X_OK) or os.path.isdir(path):
        raise CompareError(f"{path}: no program to run; build with tools/build.sh release, or say {flag}")
    return path


def fingerprint(path: str) -> str:
    """Of what is in a file: another build is another program, whatever its version."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:16]


def reason(log: str) -> str:
    """What a daemon that ended said last; "" where it said nothing itself."""
    said = re.findall(r"^moed: (.*(?:\n(?!\d{4}-).*)*)", log, re.M)
    return " ".join(said[-1].split())[:800] if said else ""


class Moed:
    """A running moed that is ready."""

    def __init__(self, program: str, flags: Sequence[str], command_in: Any = None):
        """`command_in` makes the command one that runs within limits. ServerError with what the daemon said where it ends."""
        from moe.v1 import control_pb2, control_pb2_grpc, inference_pb2, inference_pb2_grpc

        self._messages, self._control_messages = inference_pb2, control_pb2
        command = [program, "--listen", "127.0.0.1:0", "--metrics-listen", "off", "--drain-delay-seconds", "0", *flags]
        self.process = ServerProcess(command_in(command) if command_in else command)
        try:
            address = self.process.wait_for_line(r"listening on (127\.0\.0\.1:\d+)")
            self.process.wait_for_line(r"\bready: (\S+)")
        except ServerError as error:
            self.process.close()
            raise ServerError(reason(self.process.log()) or str(error)) from None
        self._channel = grpc.insecure_channel(address)
        self._inference = inference_pb2_grpc.InferenceStub(self._channel)
        self._control = control_pb2_grpc.ControlStub(self._channel)

    def __enter__(self) -> "Moed":
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _fidelity(self, fidelity: Fidelity | None) -> Any:
        kinds = self._messages.Fidelity
        return fidelity and kinds(kind=kinds.Kind.Value(fidelity[0]), max_gate_mass=fidelity[1])

    def _failed(self, error: grpc.RpcError) -> ServerError:
        self.process.check()
        return ServerError(f"{error.code().name}: {error.details()}")

    def _call(self, method: Any, request: Any) -> Any:
        """The answer; asks again while the daemon says that it is busy."""
        end = time.monotonic() + BUSY_SECONDS
        while True:
            try:
                return method(request)
            except grpc.RpcError as error:
                if error.code() is not grpc.StatusCode.RESOURCE_EXHAUSTED or time.monotonic() > end:
                    raise self._failed(error) from None
            time.sleep(POLL_SECONDS)

    def generate(self, request: Request, on_token: OnToken | None = None) -> Answer:
        pb = self._messages
        stopping = pb.Stopping(max_new_tokens=request.new_tokens, ignore_eos=True)
        stopping.time_limit.FromNanoseconds(round(request.seconds * 1e9))
        answer = Answer(len(request.prompt))
        count = 0
        try:
            for response in self._inference.GenerateStream(
                pb.GenerateRequest(
                    token_ids=pb.TokenIds(ids=request.prompt),
                    # Sampled: greedy answers of small models run in circles and want the same few experts.
                    sampling=pb.Sampling(temperature=1, seed=request.seed),
                    stopping=stopping,
                    fidelity=self._fidelity(request.fidelity),
                )
            ):
                if response.token_ids:
                    count += len(response.token_ids)
                    answer.arrived(count)
                    if on_token:
                        on_token(count)
                if response.HasField("finish"):
                    answer.stats = response.finish.stats
        except grpc.RpcError as error:
            raise self._failed(error) from None
        return answer

    def score(self, ids: Sequence[int], fidelity: Fidelity | None = None, alternatives: int = 0) -> Any:
        pb = self._messages
        request = pb.ScoreRequest(token_ids=pb.TokenIds(ids=ids), fidelity=self._fidelity(fidelity), top_logprobs=alternatives)
        return self._call(self._inference.Score, request)

    def tokenize(self, text: str) -> list[int]:
        pb = self._messages
        options = pb.TokenizeOptions(add_special_tokens=False)
        return list(self._call(self._inference.Tokenize, pb.TokenizeRequest(text=text, options=options)).token_ids)

    def server_info(self) -> Any:
        return self._call(self._control.GetServerInfo, self._control_messages.GetServerInfoRequest())

    def model_info(self) -> Any:
        return self._call(self._control.GetModelInfo, self._control_messages.GetModelInfoRequest())

    def stats(self) -> Any:
        return self._call(self._control.GetStats, self._control_messages.GetStatsRequest())

    def counters(self) -> Counters:
        stats = self.stats()
        found = {
            "read_bytes": self.process.read_bytes(),
            "expert_bytes": stats.bytes_read,
            "busy_seconds": stats.read_busy_seconds,
            "hits": stats.expert_hits,
            "lookups": stats.expert_hits + stats.expert_misses,
            "stall_seconds": stats.stall_seconds,
        }
        for name, phase in (("prefill", stats.prefill), ("decode", stats.decode)):
            found[f"{name}_hits"] = phase.expert_hits
            found[f"{name}_lookups"] = phase.expert_hits + phase.expert_misses
            found[f"{name}_stall_seconds"] = phase.stall_seconds
        return found

    def stop(self) -> None:
        self._channel.close()
        self.process.stop(STOP_SECONDS)
        self.process.close()
