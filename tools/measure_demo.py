#!/usr/bin/env python3
"""Measures the demo model with the real programs and prints the tables of README and docs/quality.md.

usage: measure_demo.py [--bin build/release/bin] cache|quality|quantizers|kv

cache    hit ratio, bytes read and TPOT with 25, 50 and 100 % of the experts in memory, turn by turn (A B C A B C ...), medians and spread
quality  perplexity on models/tales-qwen/heldout.txt of every weight format, against float32 transformers (heldout.perplexity.json)
quantizers  the same for experts of 8, 4, 3 and 2 bits made by every quantizer, the trunk in bf16
kv       the same for keys and values kept in every format, weights in bf16
"""
import argparse
import json
import os
import statistics
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "tests", "system"))
import programs  # noqa: E402

CHECKPOINT = os.path.join(ROOT, "models", "tales-qwen")
MIB = 1 << 20
PROMPTS = ["Once upon a time there was a little", "The old king said to his daughter", "In the middle of the forest stood", "It was a cold night and the"]


def memory(daemon, part):
    return next(int(p["bytes"]) for p in daemon.json("info")["server"]["memory"] if p["part"] == part)


def budget_for(bin_folder, store, flags, cache_bytes):
    """The budget whose plan leaves `cache_bytes` for experts: what the other parts take follows the budget a little, so step up to it."""
    budget = cache_bytes
    for _ in range(12):
        try:
            with programs.running(bin_folder, "--store", store, "--memory-budget", budget, *flags) as daemon:
                short = cache_bytes - memory(daemon, "cache")
        except AssertionError:
            short = MIB
        if abs(short) < 65536:
            break
        budget += short
    return budget


def measure_cache(bin_folder, folder):
    store = programs.pack(bin_folder, CHECKPOINT, os.path.join(folder, "bf16.moed"), "--expert-formats", "bf16", "--trunk-format", "bf16")
    experts = 8 * 32 * 110592
    flags = ("--kv-budget", "2MiB")
    budgets = {share: budget_for(bin_folder, store, flags, int(experts * share) + 65536) for share in (0.25, 0.5, 1.0)}
    results = {share: [] for share in budgets}
    for turn in range(5):
        for share, budget in budgets.items():
            with programs.running(bin_folder, "--store", store, "--memory-budget", budget, *flags) as daemon:
                generate = lambda prompt: daemon.json("generate", "--prompt", prompt, "--max-new-tokens", 96, "--temperature", 0.7, "--seed", 3,
                                                      "--ignore-eos")["stats"]
                generate(PROMPTS[-1])  # fills the cache
                runs = [generate(prompt) for prompt in PROMPTS]
                hits, misses = (sum(r[key] for r in runs) for key in ("expert_hits", "expert_misses"))
                results[share].append({"hit": hits / (hits + misses), "tpot": statistics.median(r["tpot_seconds"] for r in runs),
                                       "read": sum(r["bytes_read"] for r in runs) / (96 * len(runs))})
    print("| experts in memory | budget | hit ratio | read per token | TPOT (lowest to highest turn) |\n|---|---|---|---|---|")
    for share, rows in results.items():
        tpot = sorted(row["tpot"] * 1e3 for row in rows)
        print(f"| {share:.0%} | {budgets[share] / MIB:.1f} MiB | {statistics.median(r['hit'] for r in rows):.1%} | "
              f"{statistics.median(r['read'] for r in rows) / MIB:.2f} MiB | {statistics.median(tpot):.2f} ms ({tpot[0]:.2f} to {tpot[-1]:.2f}) |")


QUALITY = [("bf16", "bf16"), ("q8", "bf16"), ("q4", "bf16"), ("q2", "bf16"), ("q8", "q8"), ("q4", "q8"), ("q2", "q8"), ("q4", "q4")]
QUANTIZERS = [(experts, "bf16") for experts in ("q8", "q8:channel", "q4", "q4:channel", "q4a", "q4a:hqq", "q4a:channel", "q3", "q3:hqq", "q3:channel", "q2",
                                                "q2:hqq", "q2:channel")]


def read_golden():
    with open(os.path.join(CHECKPOINT, "heldout.perplexity.json")) as file:
        return json.load(file)


def measure_quality(bin_folder, folder, encodings=QUALITY):
    golden = read_golden()
    print("| experts | trunk | store | perplexity | against transformers | nats a token more |\n|---|---|---|---|---|---|")
    print(f"| float32 transformers | | | {golden['perplexity']:.4f} | | |")
    for experts, trunk in encodings:
        store = programs.pack(bin_folder, CHECKPOINT, os.path.join(folder, f"{experts}-{trunk}.moed"), "--expert-formats", experts,
                              "--trunk-format", trunk)
        print(f"| {experts} | {trunk} | {os.path.getsize(store) / MIB:.1f} MiB | {scored(bin_folder, golden, store)} |", flush=True)


def scored(bin_folder, golden, store, *flags):
    """Columns: perplexity, against transformers, nats a token more."""
    with programs.running(bin_folder, "--store", store, "--memory-budget", "64MiB", *flags) as daemon:
        score = daemon.json("score", "--file", os.path.join(CHECKPOINT, "heldout.txt"), "--window", golden["window"])
    assert score["tokens"] == golden["tokens"]
    more = (score["nll"] - golden["nll"]) / golden["tokens"]
    return f"{score['perplexity']:.4f} | {score['perplexity'] / golden['perplexity'] - 1:+.3%} | {more:+.5f}"


def measure_kv(bin_folder, folder):
    golden = read_golden()
    store = programs.pack(bin_folder, CHECKPOINT, os.path.join(folder, "bf16.moed"), "--expert-formats", "bf16", "--trunk-format", "bf16")
    print("| keys and values | perplexity | against transformers | nats a token more |\n|---|---|---|---|")
    for kv_format in ("f32", "f16", "q8"):
        print(f"| {kv_format} | {scored(bin_folder, golden, store, '--kv-format', kv_format)} |", flush=True)


def measure_quantizers(bin_folder, folder):
    measure_quality(bin_folder, folder, QUANTIZERS)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", choices=["cache", "quality", "quantizers", "kv"])
    parser.add_argument("--bin", default=os.path.join(ROOT, "build", "release", "bin"))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        measure = {"cache": measure_cache, "quality": measure_quality, "quantizers": measure_quantizers, "kv": measure_kv}
        measure[options.table](options.bin, folder)


if __name__ == "__main__":
    main()
