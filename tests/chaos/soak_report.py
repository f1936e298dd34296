"""What the journal of a soak says: figures, and with --plot a picture (python3-matplotlib). See tests/chaos/soak.py.

python3 -m tests.chaos.soak_report --state FOLDER [--plot FILE.png|.svg]"""

import argparse
import collections
import json
import pathlib
from typing import Any

from tests.chaos.soak import ALLOWANCE, BUDGET, MIB


def plot(rows: list[dict[str, Any]], path: pathlib.Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, (memory, counts) = plt.subplots(2, 1, sharex=True, figsize=(7, 3.8), height_ratios=(3, 2))
    minutes = [row["seconds"] / 60 for row in rows]
    memory.axhline((BUDGET + ALLOWANCE) / MIB, color="tab:red", linewidth=0.8, label="budget + 64 MiB")
    memory.plot(
        minutes, [row["highest"] / MIB for row in rows], linewidth=0.8, color="tab:orange", label="highest between samples"
    )
    memory.plot(minutes, [row["resident"] / MIB for row in rows], linewidth=0.8, color="tab:blue", label="resident")
    calm = [row for row in rows if row["calm"]]
    memory.plot([row["seconds"] / 60 for row in calm], [row["resident"] / MIB for row in calm], "k.", markersize=2, label="idle")
    memory.set_ylim(bottom=0)
    memory.set_ylabel("MiB")
    for what, colour in (("descriptors", "tab:green"), ("threads", "tab:purple")):
        counts.plot(minutes, [row[what] for row in rows], linewidth=0.8, color=colour, label=what)
    counts.set_yscale("log")
    counts.set_xlabel("minutes of load")
    for axes in (memory, counts):
        axes.legend(fontsize=6, loc="lower right")
        axes.tick_params(labelsize=7)
    figure.tight_layout()
    figure.savefig(path, dpi=75)


def span(rows: list[dict[str, Any]], what: str, scale: int = 1) -> str:
    values = [row[what] / scale for row in rows]
    return f"{min(values):.4g} to {max(values):.4g}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--state", type=pathlib.Path, required=True)
    parser.add_argument("--plot", type=pathlib.Path)
    options = parser.parse_args()
    state = json.loads((options.state / "state.json").read_text())
    rows = [json.loads(line) for line in (options.state / "journal.jsonl").read_text().splitlines()]
    calm = [row for row in rows if row["calm"]]
    print(f"{state['elapsed'] / 60:.1f} minutes in {state['parts']} parts; {len(rows)} samples, {len(calm)} of them idle")
    print(f"{state['arrivals']} arrivals, {state['left_out']} of them left out")
    allowed = (BUDGET + ALLOWANCE) // MIB
    print(f"resident: {span(rows, 'resident', MIB)} MiB, highest {span(rows, 'highest', MIB)}, of {allowed} allowed")
    for part in sorted({row["part"] for row in calm}):
        own = [row for row in calm if row["part"] == part]
        quarters = [own[len(own) * q // 4 : max(len(own) * (q + 1) // 4, len(own) * q // 4 + 1)] for q in range(4)]
        idle = ", ".join(span(quarter, "resident", MIB) for quarter in quarters)
        others = f"descriptors {span(own, 'descriptors')}, threads {span(own, 'threads')}"
        print(f"part {part}, idle, by quarters: {idle} MiB; {others}")
    codes: collections.Counter[str] = collections.Counter()
    for outcome, times in state["outcomes"].items():
        codes[outcome] += times
    for outcome in sorted(codes):
        print(f"  {outcome}: {codes[outcome]}")
    for fault in state["faults"]:
        print(f"NOT AS PROMISED: {fault}")
    if options.plot:
        plot(rows, options.plot)


if __name__ == "__main__":
    main()
