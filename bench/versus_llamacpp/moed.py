"""moed as its users meet it: the daemon with its defaults, spoken to through gRPC."""

import hashlib
import os
import subprocess
import sys
from collections.abc import Sequence

import grpc

from tools.server_process import ServerError, ServerProcess

from . import ROOT
from .cgroup import Group, command_in
from .results import Turn
from .server import Counters, OnToken
from .stream import Answer, Request


class Programs:
    """The programs of one build and the stubs of their protocol."""

    def __init__(self, folder: str, cache: str, flags: Sequence[str]):
        self.folder, self.flags = folder, list(flags)
        for name in ("moed", "moed-pack"):
            if not os.access(os.path.join(folder, name), os.X_OK):
                raise ServerError(f"{folder} has no {name}; build with tools/build.sh release, or say --bin")
        with open(os.path.join(folder, "moed"), "rb") as file:
            self.fingerprint = " ".join([hashlib.sha256(file.read()).hexdigest()[:16], *self.flags])
        stubs = os.path.join(cache, "stubs")
        os.makedirs(stubs, exist_ok=True)
        protos = [os.path.join("moe", "v1", name) for name in ("inference.proto", "control.proto")]
        folders = [f"--proto_path={os.path.join(ROOT, 'proto')}", f"--python_out={stubs}", f"--grpc_python_out={stubs}"]
        subprocess.run([sys.executable, "-m", "grpc_tools.protoc", *folders, *protos], check=True)
        if stubs not in sys.path:
            sys.path.insert(0, stubs)

    def path(self, name: str) -> str:
        return os.path.join(self.folder, name)


# What the process may need beside --memory-budget (docs/architecture.md, "Memory").
BESIDE_BUDGET_BYTES = 64 << 20
STOP_SECONDS = 10


class Moed:
    """A running moed that is ready; its budget is the limit of the group without what lies beside it."""

    def __init__(
        self,
        programs: Programs,
        store: str,
        threads: int,
        context_tokens: int,
        sessions: int = 1,
        limit_bytes: int | None = None,
        group: Group | None = None,
    ):
        from moe.v1 import control_pb2, control_pb2_grpc, inference_pb2, inference_pb2_grpc

        self._messages, self._control_messages = inference_pb2, control_pb2
        command = [programs.path("moed"), "--store", store, "--threads", str(threads)]
        command += ["--listen", "127.0.0.1:0", "--metrics-listen", "off", "--prefix-cache", "off"]
        command += ["--prompt-lookup", "off"]  # drafts are no part of what is compared
        command += ["--max-context", str(context_tokens), "--max-running", str(sessions)]
        if limit_bytes is not None:
            command += ["--memory-budget", str(limit_bytes - BESIDE_BUDGET_BYTES)]
        self.process = ServerProcess(command_in(group, [*command, *programs.flags]))
        try:
            address = self.process.wait_for_line(r"listening on (127\.0\.0\.1:\d+)")
            self.process.wait_for_line(r"\bready: (\S+)")
        except ServerError:
            self.process.close()
            raise
        self._channel = grpc.insecure_channel(address)
        self._inference = inference_pb2_grpc.InferenceStub(self._channel)
        self._control = control_pb2_grpc.ControlStub(self._channel)

    def generate(self, request: Request, on_token: OnToken | None = None) -> Answer:
        messages = self._messages
        call = self._inference.GenerateStream(
            messages.GenerateRequest(
                token_ids=messages.TokenIds(ids=request.prompt),
                sampling=messages.Sampling(temperature=1, seed=request.seed),
                stopping=messages.Stopping(max_new_tokens=request.new_tokens, ignore_eos=True),
            ),
            timeout=request.seconds,
            wait_for_ready=True,
        )
        answer = Answer(len(request.prompt))
        count = 0
        try:
            for response in call:
                if response.token_ids:
                    count += len(response.token_ids)
                    answer.arrived(count)
                    if on_token:
                        on_token(count)
        except grpc.RpcError as error:
            if error.code() != grpc.StatusCode.DEADLINE_EXCEEDED:
                self.process.check()
                raise ServerError(f"{error.code().name}: {error.details()}") from None
        return answer

    def tokenize(self, text: str) -> list[int]:
        return list(self._inference.Tokenize(self._messages.TokenizeRequest(text=text)).token_ids)

    def counters(self) -> Counters:
        stats = self._control.GetStats(self._control_messages.GetStatsRequest())
        return Counters(self.process.read_bytes(), stats.expert_hits, stats.expert_misses, stats.stall_seconds)

    def note_facts(self, turn: Turn) -> None:
        server = self._control.GetServerInfo(self._control_messages.GetServerInfoRequest())
        model = self._control.GetModelInfo(self._control_messages.GetModelInfoRequest())
        stats = self._control.GetStats(self._control_messages.GetStatsRequest())
        turn.backend, turn.io_backend = server.compute_backend, server.io_backend
        turn.policy, turn.predictor = server.policy, server.predictor
        turn.version, turn.memory_budget_bytes = server.version, server.memory_budget_bytes
        turn.experts_in_cache = min(1.0, stats.cache_capacity_bytes / model.all_expert_bytes)

    def stop(self) -> None:
        self._channel.close()
        self.process.stop(STOP_SECONDS)
        self.process.close()
