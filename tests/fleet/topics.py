"""What it is worth that a topic goes to one box: hits of three daemons behind Envoy, which shares requests out by chance or by
topic, on recorded routing. No test; it prints a table.

usage: /usr/bin/python3 -m tests.fleet.topics --store STORE --recorded-routing DIR [--at-once 1,4] [--turns 1] [-- MOED'S FLAGS]

STORE has the shape of what was recorded; its weights may be random. Each row has daemons of its own, which know nothing at
first. Half of the sequences, in an order drawn by seed, warm them; the other half is counted, and nobody is asked twice."""

import argparse
import concurrent.futures
import pathlib
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from typing import Any, NamedTuple

from bench.compare.systems.recorded import Recorded
from tests.fleet.fleet import TOKEN, Envoy, Fleet, envoy_program
from tools.daemon import DEFAULT_BINARIES, ROOT

BOXES = 3


class Row(NamedTuple):
    by_topic: bool
    at_once: int


def recording_binaries(binaries: pathlib.Path, folder: pathlib.Path) -> pathlib.Path:
    """A folder whose moed is moed-recorded."""
    folder.mkdir()
    for name, program in (("moed", "moed-recorded"), ("moectl", "moectl"), ("moed-http", "moed-http")):
        (folder / name).symlink_to((binaries / program).resolve(strict=True))
    return folder


def counters(fleet: Fleet) -> list[Counter[str]]:
    """Of each box."""
    names = ("expert_hits", "expert_misses", "bytes_read", "generated_tokens")
    every = [box.daemon.json("stats")["stats"] for box in fleet.boxes]
    return [Counter({name: int(stats.get(name, 0)) for name in names}) for stats in every]


def ask(fleet: Fleet, envoy: Envoy, row: Row, numbers: list[int], sequences: list[dict[str, Any]], most_tokens: int) -> None:
    """Each once, as many at a time as the boxes together are to have."""
    import grpc
    from moe.v1 import inference_pb2_grpc

    import moed
    from moed.requests import generate_request

    tls = moed.Tls(ca=fleet.authority.certificate.read_bytes())
    with grpc.secure_channel(envoy.server, tls.credentials()) as channel:
        stub = inference_pb2_grpc.InferenceStub(channel)

        def one(number: int) -> None:
            sequence = sequences[number]
            tokens = min(int(sequence["n"]), most_tokens)
            metadata = [("authorization", f"Bearer {TOKEN}")]
            metadata += [("moe-topic", str(sequence["category"]).encode().hex())] if row.by_topic else []
            stub.Generate(generate_request([number], {"max_new_tokens": tokens, "ignore_eos": True}), metadata=metadata)

        with concurrent.futures.ThreadPoolExecutor(BOXES * row.at_once) as callers:
            for done in [callers.submit(one, number) for number in numbers]:
                done.result()


def measure(options: argparse.Namespace, sequences: list[dict[str, Any]], row: Row, seed: int) -> str:
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        fleet = Fleet(recording_binaries(options.bin, folder / "bin"), folder, options.store.resolve())
        envoy = None
        try:
            recorded = ("--recorded-routing", options.recorded_routing.resolve(), "--prompt-lookup", "off")
            fleet.add(BOXES, *recorded, "--prefix-cache", "off", *options.flags)
            envoy = Envoy(fleet, envoy_program(options.bin.parent))
            order = list(range(len(sequences)))
            random.Random(seed).shuffle(order)
            ask(fleet, envoy, row, order[::2], sequences, options.tokens)
            before, begun = counters(fleet), time.monotonic()
            ask(fleet, envoy, row, order[1::2], sequences, options.tokens)
            seconds = time.monotonic() - begun
            after = counters(fleet)
        finally:
            if envoy:
                envoy.process.close()
            fleet.close()
    found = {name: sum(box[name] for box in after) - sum(box[name] for box in before) for name in after[0]}
    hits, tokens, shares = found["expert_hits"], found["generated_tokens"], [box["generated_tokens"] for box in after]
    return (
        f"{'topic' if row.by_topic else 'chance':7} {row.at_once:7} {hits / (hits + found['expert_misses']):9.4f} "
        f"{found['bytes_read'] / tokens / 1e6:12.3f} {tokens / seconds:9.1f} {max(shares) / sum(shares) * BOXES:8.2f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, default=DEFAULT_BINARIES)
    parser.add_argument("--store", type=pathlib.Path, required=True)
    parser.add_argument("--recorded-routing", type=pathlib.Path, required=True)
    parser.add_argument("--at-once", default="1,4", help="requests that each box has [%(default)s]")
    parser.add_argument("--turns", type=int, default=1, help="orders that are drawn [%(default)s]")
    parser.add_argument("--tokens", type=int, default=128, help="most of an answer [%(default)s]")
    parser.add_argument("flags", nargs="*", help="of each daemon")
    options = parser.parse_args()
    sequences = Recorded(str(options.recorded_routing), "").sequences
    with tempfile.TemporaryDirectory() as stubs:
        subprocess.run(["bash", ROOT / "client" / "python" / "generate_stubs.sh", stubs], check=True)
        sys.path[:0] = [stubs, str(ROOT / "client" / "python")]
        print(f"{'balance':7} {'at once':>7} {'hit ratio':>9} {'MB a token':>12} {'tokens/s':>9} {'greatest':>8}")
        for turn in range(options.turns):
            for at_once in map(int, options.at_once.split(",")):
                for by_topic in (False, True):
                    print(measure(options, sequences, Row(by_topic, at_once), turn), flush=True)


if __name__ == "__main__":
    main()
