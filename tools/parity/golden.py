"""What golden outputs of tiny checkpoints have in common, whichever version of transformers computes them."""

import argparse
import importlib.metadata
import json
import lzma
import pathlib
from collections.abc import Callable
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

LOGIT_POSITIONS = 4
GREEDY_TOKENS = 64
TARGET_TOKENS = 12
SMALLEST_GREEDY_MARGIN = 0.004  # between the two best logits, in standard deviations of the logits
SMALLEST_ROUTING_MARGIN = 0.004  # between the logits of the last expert taken and the first one left


def margin(values: torch.Tensor, taken: int) -> float:
    """Smallest gap, over the rows, between the last value taken and the first one left."""
    best = values.topk(taken + 1, -1).values
    return float((best[..., -2] - best[..., -1]).min())


def describe(
    seed: int,
    routing_margin: float,
    greedy_margin: float,
    prompt: list[int],
    last: torch.Tensor,
    greedy: list[int],
    experts: list[list[list[int]]],
) -> dict[str, Any]:
    return {
        "made_with": {p: importlib.metadata.version(p) for p in ("transformers", "torch", "tokenizers", "safetensors")},
        "seed": seed,
        "routing_margin": routing_margin,
        "greedy_margin": greedy_margin,
        "prompt": prompt,
        "logits_std": last.std().item(),
        "logits": [[float(f"{v:.8e}") for v in row] for row in last.tolist()],
        "greedy": greedy,
        "experts": experts,
    }


def scored(run: Callable[[list[int]], tuple[list[torch.Tensor], float]], seed: int, vocabulary: int) -> dict[str, Any]:
    """A random target and its log probabilities. `run`: logits that choose its tokens, and how close routers were to a tie."""
    generator = torch.Generator().manual_seed(seed + 3000)
    while True:
        target = torch.randint(3, vocabulary, (TARGET_TOKENS,), generator=generator).tolist()
        rows, routing_margin = run(target)
        if routing_margin < SMALLEST_ROUTING_MARGIN:
            continue
        logprobs = torch.stack(rows).double().log_softmax(-1)
        return {"target": target, "target_logprobs": [logprobs[i, token].item() for i, token in enumerate(target)]}


def save_tokenizer(folder: pathlib.Path) -> None:
    """Bytes and three special tokens: enough to be a whole checkpoint."""
    pieces = ["<unk>", "<s>", "</s>"] + sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={piece: i for i, piece in enumerate(pieces)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<unk>", "<s>", "</s>"])
    tokenizer.save(str(folder / "tokenizer.json"))


def write_golden(path: pathlib.Path, golden: dict[str, Any]) -> None:
    path.write_bytes(lzma.compress((json.dumps(golden) + "\n").encode(), preset=9 | lzma.PRESET_EXTREME))


def compress_weights(folder: pathlib.Path) -> None:
    """model.safetensors becomes model.safetensors.xz; one position bit, since numbers are of two bytes."""
    weights = folder / "model.safetensors"
    two_bytes = {"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME, "lc": 2, "lp": 1, "pb": 1}
    packed = lzma.compress(weights.read_bytes(), check=lzma.CHECK_CRC32, filters=[two_bytes])
    weights.with_suffix(".safetensors.xz").write_bytes(packed)
    weights.unlink()


def write_checkpoint(folder: pathlib.Path, golden: dict[str, Any]) -> None:
    """Beside the checkpoint its golden outputs; its weights are compressed."""
    write_golden(folder / "golden.json.xz", golden)
    compress_weights(folder)


def make_all(description: str | None, variants: dict[str, Any], make: Callable[[str, Any, pathlib.Path], None]) -> None:
    """The command of a script: each of its variants, in a folder of its own."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=pathlib.Path, help="folder that gets one subfolder per variant (tests/model/data)")
    parser.add_argument("--only", choices=sorted(variants), help="make just this variant")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    for name, config in variants.items():
        if arguments.only in (None, name):
            make(name, config, arguments.out / name)
