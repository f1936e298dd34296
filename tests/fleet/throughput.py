"""What a balancer costs: tokens a second of one daemon asked directly and through it, in turns, and the processor's time that it
takes beside the daemon's. No test; it prints a table.

usage: /usr/bin/python3 -m tests.fleet.throughput [--turns 5] [--store STORE] [--requests 64] [-- FLAGS OF MOED...]
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import tempfile

from tests.fleet.fleet import Envoy, Fleet, envoy_program
from tests.fleet.haproxy_test import HaProxy, listens
from tools.daemon import DEFAULT_BINARIES

NEW_TOKENS = 128
LOAD = ("--concurrency", "4", "--max-new-tokens", str(NEW_TOKENS), "--ignore-eos", "--json")


def tokens_per_second(fleet: Fleet, server: str, requests: int) -> float:
    command = [str(fleet.binaries / "moectl"), "--server", server, "--tls-ca", str(fleet.authority.certificate)]
    command += ["--tls-cert", str(fleet.client.certificate), "--tls-key", str(fleet.client.key)]
    run = subprocess.run(
        [*command, "--token-file", str(fleet.token_file), "bench", "--requests", str(requests), *LOAD],
        check=True,
        capture_output=True,
        text=True,
    )
    result = json.loads(run.stdout)
    assert not result["errors"], result
    return float(result["tokens_per_second"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--store", type=pathlib.Path, help="[the demo model's]")
    parser.add_argument("--requests", type=int, default=64, help="of a turn [%(default)s]")
    parser.add_argument("flags", nargs="*")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        fleet = Fleet(DEFAULT_BINARIES, pathlib.Path(folder), options.store and options.store.resolve())
        envoy = haproxy = None
        try:
            (box,) = fleet.add(1, *options.flags)
            envoy = Envoy(fleet, envoy_program(DEFAULT_BINARIES.parent))
            haproxy = HaProxy(fleet)
            haproxy.process.wait_for(lambda: listens(haproxy.http), "HAProxy to listen")
            servers = {"direct": box.daemon.address, "Envoy": envoy.server, "HAProxy": haproxy.server}
            processes = {"direct": box.daemon, "Envoy": envoy.process, "HAProxy": haproxy.process}
            found: dict[str, list[float]] = {name: [] for name in servers}
            taken = dict.fromkeys(servers, 0.0)
            for _ in range(options.turns):
                for name, server in servers.items():
                    before = processes[name].processor_seconds()
                    found[name].append(tokens_per_second(fleet, server, options.requests))
                    taken[name] += processes[name].processor_seconds() - before
        finally:
            for balancer in (envoy, haproxy):
                if balancer:
                    balancer.process.close()
            fleet.close()
    for name, rates in found.items():
        ratios = [rate / direct for rate, direct in zip(rates, found["direct"], strict=True)]
        print(
            f"{name}: {statistics.median(rates):.0f} tokens/s ({min(rates):.0f} to {max(rates):.0f}), "
            f"{statistics.median(ratios):.3f} of direct ({min(ratios):.3f} to {max(ratios):.3f}); "
            f"{taken[name] / options.turns / options.requests / NEW_TOKENS * 1e6:.0f} us of processor time a token"
        )


if __name__ == "__main__":
    main()
