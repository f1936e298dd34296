#!/usr/bin/env python3
"""What an idle conversation costs when it goes on: the time to the first token where its keys and values are in memory, come back
from disk (--kv-spill) or are computed again.

usage: session_return.py STORE [--context 2000] [--turns 3] [--memory-budget BYTES] [--bin build/release/bin]

Each turn starts three daemons, one for each case, whose keys and values have room for two and a half conversations. Four
conversations begin in each, with other pieces of the text, then each goes on once; where there is a disk it has been written by
then. In memory it goes on at once. An answer counts for the case that its usage.cached_tokens shows: one decision of the price in
16 goes the other way. Needs Debian's protoc and its gRPC plugin, python3-grpcio, python3-protobuf.
"""

import argparse
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
from typing import Any

import grpc

if not __package__:  # run by its path
    sys.path[0] = str(pathlib.Path(__file__).resolve().parents[1])

from tools.daemon import DEFAULT_BINARIES, DEMO_CHECKPOINT, ROOT, Daemon, running
from tools.server_process import ServerError, wait_until

CASES = ("in memory", "from disk", "computed again")
CONVERSATIONS = 4
ROOM = 2.5  # conversations
FIRST_ANSWER, ADDED, SECOND_ANSWER = 8, 16, 2  # tokens
WAIT_SECONDS = 600


class Client:
    """Conversations with one daemon."""

    def __init__(self, daemon: Daemon):
        from moe.v1 import control_pb2, control_pb2_grpc, inference_pb2, inference_pb2_grpc

        self._pb, self._control_pb = inference_pb2, control_pb2
        channel = grpc.insecure_channel(daemon.address)
        self._inference = inference_pb2_grpc.InferenceStub(channel)
        self._control = control_pb2_grpc.ControlStub(channel)

    def tokenize(self, text: str) -> list[int]:
        return list(self._inference.Tokenize(self._pb.TokenizeRequest(text=text), timeout=WAIT_SECONDS).token_ids)

    def bytes_of_token(self) -> int:
        model = self._control.GetModelInfo(self._control_pb.GetModelInfoRequest(), timeout=WAIT_SECONDS)
        return int(model.layers * model.kv_heads * model.head_dim * 2 * 2)  # keys and values in halves

    def say(self, session: str, prompt: list[int], new_tokens: int, held: int) -> tuple[float, Any]:
        """Seconds to the first token, and the Finish."""
        request = self._pb.GenerateRequest(
            token_ids=self._pb.TokenIds(ids=prompt),
            sampling=self._pb.Sampling(temperature=0),
            stopping=self._pb.Stopping(max_new_tokens=new_tokens, ignore_eos=True),
            session_id=session,
            expected_tokens=held,
        )
        begun, first, finish = time.monotonic(), 0.0, None
        for response in self._inference.GenerateStream(request, timeout=WAIT_SECONDS):
            if response.token_ids and not first:
                first = time.monotonic() - begun
            if response.HasField("finish"):
                finish = response.finish
        return first, finish

    def on_disk(self, session: str) -> int:
        listed = self._control.ListSessions(self._control_pb.ListSessionsRequest(), timeout=WAIT_SECONDS).sessions
        return next(int(each.tokens_on_disk) for each in listed if each.session_id == session)

    def wait_until_written(self, session: str, tokens: int) -> None:
        wait_until(lambda: self.on_disk(session) >= tokens, f"{session} to be written", WAIT_SECONDS)


def kind(finish: Any, case: str) -> str:
    """The case that an answer was, by what it did not compute."""
    usage = finish.usage
    if usage.cached_tokens < usage.prompt_tokens / 2:
        return CASES[2]
    return CASES[0] if case == CASES[0] else CASES[1]


def turn(client: Client, case: str, pieces: list[list[int]], found: dict[str, list[float]]) -> None:
    held: list[int] = []

    def go_on(i: int) -> None:
        seconds, finish = client.say(f"talk-{i}", pieces[i][-ADDED:], SECOND_ANSWER, held[i])
        found[kind(finish, case)].append(seconds)

    for i, piece in enumerate(pieces):
        _, finish = client.say(f"talk-{i}", piece[:-ADDED], FIRST_ANSWER, 0)
        held.append(finish.session_tokens)
        if case == CASES[0]:
            go_on(i)
    if case == CASES[0]:
        return
    for i in range(len(pieces)):
        if case == CASES[1]:  # all but the token that was answered last
            client.wait_until_written(f"talk-{i}", held[i] - 1)
        go_on(i)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("store", type=pathlib.Path)
    parser.add_argument("--context", type=int, default=2000, help="tokens of a conversation [%(default)s]")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--bin", type=pathlib.Path, default=DEFAULT_BINARIES)
    parser.add_argument("--memory-budget", default="", help="of moed [its own default]")
    options = parser.parse_args()
    found: dict[str, list[float]] = {case: [] for case in CASES}
    with tempfile.TemporaryDirectory(dir=options.store.parent) as folder:
        subprocess.run(["bash", ROOT / "client" / "python" / "generate_stubs.sh", folder], check=True)
        sys.path.insert(0, folder)
        longest = options.context + FIRST_ANSWER + ADDED + SECOND_ANSWER
        budget = ("--memory-budget", options.memory_budget) if options.memory_budget else ()
        common = ("--store", options.store, "--prefix-cache", "off", "--max-running", 1, "--max-context", longest, *budget)
        with running(options.bin, *common) as daemon:
            probe = Client(daemon)
            tokens = probe.tokenize((DEMO_CHECKPOINT / "heldout.txt").read_text()[: CONVERSATIONS * options.context * 8])
            room = int(ROOM * longest * probe.bytes_of_token())
        pieces = [tokens[i * options.context :][: options.context] for i in range(CONVERSATIONS)]
        spill = ("--kv-spill", folder, "--kv-spill-budget", 2 * CONVERSATIONS * room)
        for _ in range(options.turns):
            for case in CASES:
                flags = (*common, "--kv-budget", room, *(spill if case == CASES[1] else ()))
                with running(options.bin, *flags) as daemon:
                    client = Client(daemon)
                    client.say("warm", pieces[-1], SECOND_ANSWER, 0)
                    turn(client, case, pieces, found)
    for case, seconds in found.items():
        if seconds:
            range_of = f"{min(seconds) * 1000:.0f} to {max(seconds) * 1000:.0f}"
            print(f"{case:15} {statistics.median(seconds) * 1000:6.0f} ms to the first token ({range_of}), {len(seconds)} times")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (ServerError, grpc.RpcError) as error:
        sys.exit(f"session_return: {error}")
