#!/usr/bin/env python3
"""What a long prompt and an answer that is streamed cost each other: the time to the prompt's first token, and the stream's rate
before it and meanwhile. Several folders of programs take turns.

usage: prompt_beside_stream.py STORE [--text FILE] [--bin FOLDER...] [--memory-budget BYTES] [--turns 2]

Each turn starts a daemon of each folder, which answers a prompt once. Then three times a stream begins, and once it has 24 tokens
a prompt of another place in the text. `missed` are the tokens that the stream would have had meanwhile at its rate before.
Figures are medians. Needs Debian's protoc and its gRPC plugin, python3-grpcio, python3-protobuf.
"""

import argparse
import contextlib
import itertools
import pathlib
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from typing import Any

import grpc

if not __package__:  # run by its path
    sys.path[0] = str(pathlib.Path(__file__).resolve().parents[1])

from tools.daemon import DEFAULT_BINARIES, DEMO_CHECKPOINT, ROOT, running
from tools.server_process import ServerError

STREAMS = 3  # of a turn
FIRST_TOKENS, WARM_TOKENS = 24, 8  # of a stream: until the prompt comes, and before its rate counts
STREAM_CHARACTERS = 200
WAIT_SECONDS = 600


class Client:
    def __init__(self, address: str):
        from moe.v1 import inference_pb2, inference_pb2_grpc

        self._pb = inference_pb2
        self._inference = inference_pb2_grpc.InferenceStub(grpc.insecure_channel(address))

    def stream(self, text: str, new_tokens: int) -> Any:
        request = self._pb.GenerateRequest(
            text=text,
            sampling=self._pb.Sampling(temperature=0),
            stopping=self._pb.Stopping(max_new_tokens=new_tokens, ignore_eos=True),
        )
        return self._inference.GenerateStream(request, timeout=WAIT_SECONDS)

    def first_token(self, text: str) -> tuple[float, int]:
        """When it came, and how many tokens the prompt had."""
        at, tokens = 0.0, 0
        for response in self.stream(text, 2):
            if response.token_ids and not at:
                at = time.monotonic()
            if response.HasField("finish"):
                tokens = response.finish.usage.prompt_tokens
        return at, tokens


class Stream:
    """When its tokens came."""

    def __init__(self, client: Client, text: str):
        self.times: list[float] = []
        self._begun = threading.Event()
        self._call = client.stream(text, 100_000)
        self._thread = threading.Thread(target=self._read)
        self._thread.start()
        if not self._begun.wait(WAIT_SECONDS):
            raise ServerError("no stream began")

    def _read(self) -> None:
        with contextlib.suppress(grpc.RpcError):
            for response in self._call:
                self.times += [time.monotonic()] * len(response.token_ids)
                if len(self.times) >= FIRST_TOKENS:
                    self._begun.set()

    def end(self) -> list[float]:
        self._call.cancel()
        self._thread.join()
        return self.times


def measure(client: Client, text: str, characters: int) -> dict[str, float]:
    stream = Stream(client, text[:STREAM_CHARACTERS])
    begun = time.monotonic()
    ended, tokens = client.first_token(text[STREAM_CHARACTERS : STREAM_CHARACTERS + characters])
    times = stream.end()
    before = [each for each in times[WARM_TOKENS:] if each < begun]
    meanwhile = [each for each in times if begun <= each < ended]
    rate = (len(before) - 1) / (before[-1] - before[0])
    between = [after - each for each, after in itertools.pairwise(times) if begun <= after < ended]
    return {
        "prompt_tokens": tokens,
        "first_token_s": ended - begun,
        "stream_before": rate,
        "stream_meanwhile": len(meanwhile) / (ended - begun),
        "longest_wait_s": max(between, default=ended - begun),
        "missed": rate * (ended - begun) - len(meanwhile),
    }


def turn(binaries: pathlib.Path, flags: list[str], text: str, characters: int) -> list[dict[str, float]]:
    with running(binaries, *flags) as daemon:
        client = Client(daemon.address)
        client.first_token(text[:characters])
        list(client.stream(text[:STREAM_CHARACTERS], 40))
        place = characters + STREAM_CHARACTERS
        return [measure(client, text[place * each :], characters) for each in range(1, STREAMS + 1)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("store", type=pathlib.Path)
    parser.add_argument("--text", type=pathlib.Path, default=DEMO_CHECKPOINT / "heldout.txt")
    parser.add_argument("--bin", type=pathlib.Path, nargs="+", default=[DEFAULT_BINARIES])
    parser.add_argument("--memory-budget", default="900MiB")
    parser.add_argument("--max-context", default="2048")
    parser.add_argument("--prompt-characters", type=int, default=6200)
    parser.add_argument("--turns", type=int, default=2)
    options = parser.parse_args()
    text = options.text.read_text()
    if len(text) < (STREAMS + 1) * (options.prompt_characters + STREAM_CHARACTERS):
        parser.error(f"{options.text} is too short")
    flags = ["--store", str(options.store), "--memory-budget", options.memory_budget, "--max-context", options.max_context]
    flags += ["--prefix-cache", "off", "--request-log", "off"]
    found: dict[pathlib.Path, list[dict[str, float]]] = {binaries: [] for binaries in options.bin}
    with tempfile.TemporaryDirectory() as stubs:
        subprocess.run(["bash", ROOT / "client" / "python" / "generate_stubs.sh", stubs], check=True)
        sys.path.insert(0, stubs)
        for _ in range(options.turns):
            for binaries in options.bin:
                found[binaries] += turn(binaries, flags, text, options.prompt_characters)
    for binaries, figures in found.items():
        medians = {name: statistics.median(each[name] for each in figures) for name in figures[0]}
        print(binaries, "  ".join(f"{name} {value:.2f}" for name, value in medians.items()))


if __name__ == "__main__":
    try:
        main()
    except ServerError as error:
        sys.exit(f"prompt_beside_stream: {error}")
