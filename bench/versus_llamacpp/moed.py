"""moed as its users meet it: the daemon with its defaults, spoken to through gRPC."""
import contextlib
import hashlib
import os
import subprocess
import sys

import grpc

from process import Process, ServerError
from stream import Answer

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


class Programs:
    """The programs of one build and the stubs of their protocol."""

    def __init__(self, folder, cache, flags=()):
        self.folder, self.flags = folder, list(flags)
        for name in ("moed", "moed-pack"):
            if not os.access(os.path.join(folder, name), os.X_OK):
                raise ServerError(f"{folder} has no {name}; build with tools/build.sh release, or say --bin")
        with open(os.path.join(folder, "moed"), "rb") as file:
            self.fingerprint = " ".join([hashlib.sha256(file.read()).hexdigest()[:16], *self.flags])
        stubs = os.path.join(cache, "stubs")
        os.makedirs(stubs, exist_ok=True)
        protos = [os.path.join("moe", "v1", name) for name in ("inference.proto", "control.proto")]
        subprocess.run([sys.executable, "-m", "grpc_tools.protoc", f"--proto_path={os.path.join(ROOT, 'proto')}",
                        f"--python_out={stubs}", f"--grpc_python_out={stubs}", *protos], check=True)
        if stubs not in sys.path:
            sys.path.insert(0, stubs)

    def path(self, name):
        return os.path.join(self.folder, name)


# What the process may need beside --memory-budget (docs/architecture.md, "Memory").
BESIDE_BUDGET_BYTES = 64 << 20


class Moed:
    def __init__(self, programs, store, threads, context_tokens, sessions=1, limit_bytes=None, group=None):
        from moe.v1 import control_pb2, control_pb2_grpc, inference_pb2, inference_pb2_grpc
        self._messages, self._control_messages = inference_pb2, control_pb2
        self.process = Process([programs.path("moed"), "--store", store, "--threads", str(threads), "--listen", "127.0.0.1:0",
                                "--metrics-listen", "off", "--max-context", str(context_tokens), "--max-sessions", str(sessions),
                                *(["--memory-budget", str(limit_bytes - BESIDE_BUDGET_BYTES)] if limit_bytes else []),
                                *programs.flags], group)
        try:
            self.process.wait_for(lambda: self.process.find(r"\bready: (\S+)"), "moed to be ready")
            address = self.process.find(r"listening on (127\.0\.0\.1:\d+)")
        except ServerError:
            self.process.stop()
            raise
        self._channel = grpc.insecure_channel(address)
        self._inference = inference_pb2_grpc.InferenceStub(self._channel)
        self._control = control_pb2_grpc.ControlStub(self._channel)

    def generate(self, request, on_token=lambda count: None):
        messages = self._messages
        call = self._inference.GenerateStream(
            messages.GenerateRequest(
                token_ids=messages.TokenIds(ids=request.prompt), sampling=messages.Sampling(temperature=1, seed=request.seed),
                stopping=messages.Stopping(max_new_tokens=request.new_tokens, ignore_eos=True)),
            timeout=request.seconds, wait_for_ready=True)
        answer = Answer(len(request.prompt))
        count = 0
        try:
            for response in call:
                if response.token_ids:
                    count += len(response.token_ids)
                    answer.arrived(count)
                    on_token(count)
        except grpc.RpcError as error:
            if error.code() != grpc.StatusCode.DEADLINE_EXCEEDED:
                self.process.check()
                raise ServerError(f"{error.code().name}: {error.details()}") from None
        return answer

    def tokenize(self, text):
        return list(self._inference.Tokenize(self._messages.TokenizeRequest(text=text)).token_ids)

    def counters(self):
        stats = self._control.GetStats(self._control_messages.GetStatsRequest())
        return {"read_bytes": self.process.read_bytes(), "hits": stats.expert_hits, "misses": stats.expert_misses,
                "stall_seconds": stats.stall_seconds}

    def facts(self):
        """What does not change while it runs."""
        server = self._control.GetServerInfo(self._control_messages.GetServerInfoRequest())
        model = self._control.GetModelInfo(self._control_messages.GetModelInfoRequest())
        stats = self._control.GetStats(self._control_messages.GetStatsRequest())
        return {"backend": server.compute_backend, "io_backend": server.io_backend, "policy": server.policy,
                "predictor": server.predictor, "version": server.version, "memory_budget_bytes": server.memory_budget_bytes,
                "experts_in_cache": min(1.0, stats.cache_capacity_bytes / model.all_expert_bytes)}

    def stop(self):
        self._channel.close()
        self.process.stop()


@contextlib.contextmanager
def running(*arguments, **keywords):
    server = Moed(*arguments, **keywords)
    try:
        yield server
    finally:
        server.stop()
