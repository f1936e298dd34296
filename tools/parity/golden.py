"""What golden outputs of tiny checkpoints have in common, whichever version of transformers computes them."""

import importlib.metadata
import json
import lzma
import pathlib
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

LOGIT_POSITIONS = 4
GREEDY_TOKENS = 64
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
