#!/usr/bin/env python3
"""What `moed plan` expects of decoding beside what the daemon then does, at every budget that the plan names.

usage: plan_accuracy.py [--bin build/release/bin] [--store STORE] [--turns 3] [--tokens 128]

Without --store the demo model is packed in bf16. In a turn the machine is measured and planned for, then a daemon runs with each
budget: prompts of the demo model once to warm the cache, then again with other seeds. Expected and measured tokens a second are
compared turn by turn, since machines are noisy. The table has medians, and the lowest and highest ratio of the turns.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from typing import Any

if not __package__:  # run by its path
    sys.path[0] = str(pathlib.Path(__file__).resolve().parents[1])

from tools.daemon import DEFAULT_BINARIES, PackError, pack_demo, running
from tools.measure_demo import PROMPTS
from tools.server_process import ServerError

MIB = 1 << 20


@dataclass
class Row:
    budget: int
    share: float
    expected: list[float] = field(default_factory=list)  # tokens a second, by turn
    measured: list[float] = field(default_factory=list)
    expected_hits: float = 0
    measured_hits: list[float] = field(default_factory=list)

    def ratios(self) -> list[float]:
        return sorted(expected / measured for expected, measured in zip(self.expected, self.measured, strict=True))


def planned(binaries: pathlib.Path, store: pathlib.Path) -> dict[str, Any]:
    run = subprocess.run([binaries / "moed", "plan", store, "--json"], check=True, capture_output=True, text=True)
    plan: dict[str, Any] = json.loads(run.stdout)
    return plan


def decode(binaries: pathlib.Path, store: pathlib.Path, budget: int, tokens: int) -> tuple[float, float]:
    """Tokens a second and hit ratio of answers, once the cache is warm."""
    with running(binaries, "--store", store, "--memory-budget", budget) as daemon:

        def generate(prompt: str, seed: int) -> float:
            sampling = ("--temperature", 0.7, "--seed", seed, "--ignore-eos")
            answer = daemon.json("generate", "--prompt", prompt, "--max-new-tokens", tokens, *sampling)
            return float(answer["stats"]["tpot_seconds"])

        def lookups() -> tuple[int, int]:
            phase = daemon.json("stats", "--count", 1)["stats"]["decode"]
            return int(phase.get("expert_hits", 0)), int(phase.get("expert_misses", 0))

        for prompt in PROMPTS:
            generate(prompt, 1)
        hits, misses = lookups()
        seconds = statistics.median(generate(prompt, 2) for prompt in PROMPTS)
        more_hits, more_misses = lookups()
        return 1 / seconds, (more_hits - hits) / (more_hits - hits + more_misses - misses)


def measure(binaries: pathlib.Path, store: pathlib.Path, turns: int, tokens: int) -> list[Row]:
    rows: dict[int, Row] = {}
    for turn in range(turns):
        plan = planned(binaries, store)
        machine = plan["machine"]
        print(
            f"turn {turn + 1}: memory {machine['memory_bytes_per_second'] / 1e9:.1f} GB/s, "
            f"products {machine['product_seconds'] * 1e3:.3f} ms, one read {machine['one_read_seconds'] * 1e3:.3f} ms, "
            f"{machine['burst_reads']} reads {machine['burst_seconds'] * 1e3:.3f} ms",
            flush=True,
        )
        for budget in plan["budgets"]:
            size = budget["memory_budget_bytes"]
            row = rows.setdefault(size, Row(size, budget["expert_share"], expected_hits=budget["expected"]["hit_ratio"]))
            row.expected.append(budget["expected"]["tokens_per_second"])
            speed, hits = decode(binaries, store, size, tokens)
            row.measured.append(speed)
            row.measured_hits.append(hits)
    return list(rows.values())


def table(rows: list[Row]) -> str:
    lines = [
        "| budget | experts held | hits expected | measured | tokens/s expected | measured | ratio (lowest to highest turn) |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        ratios = row.ratios()
        lines.append(
            f"| {row.budget / MIB:.1f} MiB | {row.share:.0%} | {row.expected_hits:.1%} | "
            f"{statistics.median(row.measured_hits):.1%} | {statistics.median(row.expected):.0f} | "
            f"{statistics.median(row.measured):.0f} | "
            f"{statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f}) |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, default=DEFAULT_BINARIES)
    parser.add_argument("--store", type=pathlib.Path)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=128)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        try:
            store = options.store or pack_demo(options.bin, pathlib.Path(folder), "bf16", "bf16")
            print(table(measure(options.bin, store, options.turns, options.tokens)))
        except (PackError, ServerError, OSError, subprocess.CalledProcessError) as error:
            sys.exit(f"plan_accuracy: {error}")


if __name__ == "__main__":
    main()
