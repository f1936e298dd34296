"""llama.cpp: fetched from the PyPI source package llama-cpp-python, built for a set of instructions, run as llama-server."""

import http.client
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from typing import Any

from tools.server_process import ServerError, ServerProcess, free_port

from .. import Say
from ..journal import Figures
from ..server import Answer, Counters, OnToken, Request

PACKAGE, VERSION = "llama-cpp-python", "0.3.36"
OPTIONS = {
    "CMAKE_BUILD_TYPE": "Release",
    "BUILD_SHARED_LIBS": "OFF",
    "LLAMA_OPENSSL": "OFF",
    "LLAMA_BUILD_SERVER": "ON",
    "LLAMA_BUILD_UI": "OFF",
    "LLAMA_USE_PREBUILT_UI": "OFF",
    "LLAMA_BUILD_APP": "OFF",
    "LLAMA_BUILD_TESTS": "OFF",
    "LLAMA_BUILD_EXAMPLES": "OFF",
}
# What both programs may use: all that this processor has, or no more than a processor with AVX2.
INSTRUCTIONS = {
    "native": {"GGML_NATIVE": "ON"},
    "avx2": {
        "GGML_NATIVE": "OFF",
        "GGML_SSE42": "ON",
        "GGML_AVX": "ON",
        "GGML_AVX2": "ON",
        "GGML_BMI2": "ON",
        "GGML_FMA": "ON",
        "GGML_F16C": "ON",
    },
}
TARGETS = ("llama-server", "llama-bench")
STOP_SECONDS = 10


def fetch(cache: str, say: Say) -> str:
    """The folder of the unpacked package."""
    name = f"{PACKAGE.replace('-', '_')}-{VERSION}"
    folder, archive = os.path.join(cache, name), os.path.join(cache, name + ".tar.gz")
    if os.path.isdir(folder):
        return folder
    if not os.path.exists(archive):
        say(f"downloading the source package {PACKAGE} {VERSION}")
        subprocess.run(
            [
                sys.executable,
                "-m",
                "pip",
                "download",
                "--quiet",
                "--no-binary",
                ":all:",
                "--no-deps",
                "--dest",
                cache,
                f"{PACKAGE}=={VERSION}",
            ],
            check=True,
        )
    with tempfile.TemporaryDirectory(dir=cache) as unpacked:
        subprocess.run(["tar", "--extract", "--file", archive, "--directory", unpacked], check=True)
        os.rename(os.path.join(unpacked, name), folder)
    return folder


def build(cache: str, instructions: str, say: Say, targets: Sequence[str] = TARGETS) -> str:
    """The folder of the programs; downloads and builds whatever is not there."""
    folder = fetch(cache, say)
    source = os.path.join(folder, "vendor", "llama.cpp")
    build_folder = os.path.join(folder, "build" if instructions == "native" else f"build-{instructions}")
    programs = os.path.join(build_folder, "bin")
    if not all(os.access(os.path.join(programs, target), os.X_OK) for target in targets):
        say(f"building llama.cpp in {build_folder} (some minutes)")
        settings = [f"-D{name}={value}" for name, value in (OPTIONS | INSTRUCTIONS[instructions]).items()]
        subprocess.run(
            ["cmake", "-S", source, "-B", build_folder, "-G", "Ninja", *settings], check=True, stdout=subprocess.DEVNULL
        )
        subprocess.run(["cmake", "--build", build_folder, "--target", *targets], check=True, stdout=subprocess.DEVNULL)
    return programs


def version(programs: str) -> str:
    result = subprocess.run([os.path.join(programs, "llama-server"), "--version"], capture_output=True, text=True)
    lines = (result.stdout + result.stderr).splitlines()
    return f"{PACKAGE} {VERSION}, {next((line for line in lines if 'version' in line), 'version unknown')}"


def bench(programs: str, model: str, threads: int, repack: bool) -> Figures:
    """What llama-bench itself says, on random tokens."""
    command = [os.path.join(programs, "llama-bench"), "--model", model, "--threads", str(threads), "--repack", str(int(repack))]
    command += ["--n-prompt", "512", "--n-gen", "64", "--repetitions", "2", "--output", "json"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=300)
    if result.returncode:
        raise ServerError(f"llama-bench ended with status {result.returncode}: {result.stderr.strip()[-300:]}")
    return parse_bench(result.stdout)


def parse_bench(text: str) -> Figures:
    return {"prefill" if row["n_prompt"] else "decode": row["avg_ts"] for row in json.loads(text)}


def parse_event(line: bytes) -> tuple[int, bool] | None:
    """(tokens so far, is it the last) of one line of the stream; None for lines that carry no event."""
    if not line.startswith(b"data: "):
        return None
    event = json.loads(line[len(b"data: ") :])
    if "error" in event:
        raise ServerError(f"llama-server: {event['error'].get('message', event['error'])}")
    timings = event.get("timings") or {}
    return timings.get("predicted_n", 0), bool(event.get("stop"))


class Llama:
    """A running llama-server that is healthy. `programs` is the folder that build() gave."""

    def __init__(
        self, programs: str, model: str, threads: int, repack: bool, context_tokens: int, sessions: int, command_in: Any
    ):
        self._port = free_port()
        command = [os.path.join(programs, "llama-server"), "--model", model, "--host", "127.0.0.1", "--port", str(self._port)]
        command += ["--threads", str(threads), "--threads-batch", str(threads)]
        command += ["--ctx-size", str(context_tokens), "--parallel", str(sessions)]
        command += ["--fit", "off", "--cache-ram", "0", "--no-warmup"]
        command += [] if repack else ["--no-repack"]
        self.process = ServerProcess(command_in(command) if command_in else command)
        try:
            self.process.wait_for(self._healthy, "llama-server to be healthy")
        except ServerError:
            self.process.close()
            raise

    def _healthy(self) -> bool:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=5)
        try:
            connection.request("GET", "/health")
            return connection.getresponse().status == 200
        except OSError:
            return False
        finally:
            connection.close()

    def generate(self, request: Request, on_token: OnToken | None = None) -> Answer:
        body = json.dumps(
            {
                "prompt": request.prompt,
                "n_predict": request.new_tokens,
                "stream": True,
                "timings_per_token": True,
                "cache_prompt": False,
                "ignore_eos": True,
                "samplers": ["temperature"],
                "temperature": 1.0,
                "seed": request.seed,
            }
        )
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=request.seconds)
        answer = Answer(len(request.prompt))
        try:
            connection.request("POST", "/completion", body, {"Content-Type": "application/json"})
            response = connection.getresponse()
            if response.status != 200:
                raise ServerError(f"llama-server: HTTP {response.status}: {response.read(300)!r}")
            for line in response:
                event = parse_event(line)
                if event is None:
                    continue
                count, last = event
                if count > len(answer.times):
                    answer.arrived(count)
                    if on_token:
                        on_token(count)
                if last or (answer.times and answer.times[-1] - answer.started > request.seconds):
                    break
        except TimeoutError:
            pass  # as many tokens as came
        except (OSError, http.client.HTTPException) as error:
            self.process.check()
            raise ServerError(f"llama-server: {error}") from None
        finally:
            connection.close()
        return answer

    def counters(self) -> Counters:
        return {"read_bytes": self.process.read_bytes()}

    def stop(self) -> None:
        self.process.stop(STOP_SECONDS)
        self.process.close()
