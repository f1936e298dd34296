#!/usr/bin/env python3
"""Perplexity of a text as transformers computes it in float32 from a checkpoint's weights.

The counterpart of `moectl score --file F --window N --json`: the text is tokenised whole without adding tokens, cut into
consecutive windows, each is scored alone, and tokens 2..N of each window count. Prints
{"tokens": N, "nll": sum, "perplexity": exp(nll / N)}.

Measured with transformers 4.57.6 and torch 2.15.0.
"""

import argparse
import json
import math
import pathlib

import torch
import torch.nn.functional as F
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM, PreTrainedModel


@torch.no_grad()
def score(model: PreTrainedModel, ids: list[int], window: int) -> tuple[int, float]:
    """Number of tokens that count and the sum of their negative log probabilities in nats."""
    tokens, nll = 0, 0.0
    for start in range(0, len(ids), window):
        piece = torch.tensor([ids[start : start + window]])
        if piece.shape[1] < 2:
            continue
        logits = model(piece).logits[0, :-1].double()
        nll += F.cross_entropy(logits, piece[0, 1:], reduction="sum").item()
        tokens += piece.shape[1] - 1
    return tokens, nll


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint", type=pathlib.Path, help="folder in Hugging Face format")
    parser.add_argument("text", type=pathlib.Path, help="UTF-8 text file")
    parser.add_argument("--window", type=int, default=256, help="tokens of a window (default 256)")
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    if arguments.window < 2:
        parser.error("--window must be at least 2")
    torch.set_num_threads(arguments.threads)
    tokenizer = Tokenizer.from_file(str(arguments.checkpoint / "tokenizer.json"))
    with open(arguments.text, encoding="utf-8", newline="") as file:
        ids = tokenizer.encode(file.read(), add_special_tokens=False).ids
    model = AutoModelForCausalLM.from_pretrained(arguments.checkpoint, dtype=torch.float32).eval()
    tokens, nll = score(model, ids, arguments.window)
    if tokens == 0:
        raise SystemExit("the text has fewer than two tokens")
    print(json.dumps({"tokens": tokens, "nll": nll, "perplexity": math.exp(nll / tokens)}))


if __name__ == "__main__":
    main()
