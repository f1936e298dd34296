#!/usr/bin/env python3
"""Make the tiny Switch Transformers of tests/model/data and their golden outputs.

As make_golden.py does for decoders: random checkpoints of awkward sizes and, in golden.json.xz, what transformers computes from
them in float32. Of a source: the experts of every token in the encoder's layers, none where its expert was full, and how often
that was. Then logits of the decoder's first tokens, and 64 greedy tokens, each step with the keys and values of those before; and
in the same way the log probabilities of a target.

Made with transformers 5.23.0, torch 2.15.0, safetensors 0.8.0 and tokenizers 0.23.3.
"""

import json
import pathlib
from typing import Any

import torch
from transformers import SwitchTransformersConfig, SwitchTransformersForConditionalGeneration

from golden import (
    GREEDY_TOKENS,
    LOGIT_POSITIONS,
    SMALLEST_GREEDY_MARGIN,
    SMALLEST_ROUTING_MARGIN,
    describe,
    make_all,
    margin,
    save_tokenizer,
    scored,
    write_checkpoint,
)
from make_golden import random_weights
from variants import VOCABULARY

SOURCE_TOKENS = 41
START = 0

COMMON = dict(
    vocab_size=VOCABULARY,
    eos_token_id=2,
    pad_token_id=0,
    decoder_start_token_id=START,
    router_jitter_noise=0.01,
    dense_act_fn="relu",
)

VARIANTS = {
    # Experts are full, buckets are few, the halves differ in length.
    "switch_transformers": SwitchTransformersConfig(
        d_model=36,
        d_kv=6,
        d_ff=20,
        num_heads=5,
        num_layers=4,
        num_decoder_layers=3,
        num_sparse_encoder_layers=2,
        num_sparse_decoder_layers=1,
        num_experts=5,
        expert_capacity=6,
        relative_attention_num_buckets=10,
        relative_attention_max_distance=19,
        tie_word_embeddings=True,
        **COMMON,
    ),
    # Experts in every layer of the encoder, a head of its own, a router with a bias.
    "switch_transformers_untied": SwitchTransformersConfig(
        d_model=26,
        d_kv=12,
        d_ff=34,
        num_heads=3,
        num_layers=2,
        num_decoder_layers=4,
        num_sparse_encoder_layers=2,
        num_sparse_decoder_layers=2,
        num_experts=3,
        expert_capacity=64,
        router_bias=True,
        tie_word_embeddings=False,
        **COMMON,
    ),
}


class Watched:
    """What the routers choose while a model runs, and how close they were to another choice."""

    def __init__(self, model: torch.nn.Module) -> None:
        self.experts: list[list[list[int]]] = []
        self.margin = float("inf")
        for module in model.modules():
            if type(module).__name__ == "SwitchTransformersTop1Router":
                module.register_forward_hook(self.on_router)

    def on_router(self, _module: torch.nn.Module, _inputs: Any, output: tuple[torch.Tensor, ...]) -> None:
        chosen, _, logits = output
        self.margin = min(self.margin, margin(logits[0], 1))
        self.experts.append([row.nonzero().flatten().tolist() for row in chosen[0]])


def decode(
    model: SwitchTransformersForConditionalGeneration, encoded: Any, count: int, target: list[int] | None = None
) -> list[torch.Tensor]:
    """Logits that choose the decoder's first tokens: those of the target, or greedy ones."""
    token, past, rows = START, None, []
    for i in range(count):
        step = model(encoder_outputs=encoded, decoder_input_ids=torch.tensor([[token]]), past_key_values=past, use_cache=True)
        past, logits = step.past_key_values, step.logits[0, -1].float()
        token = target[i] if target else int(logits.argmax())
        rows.append(logits)
    return rows


@torch.no_grad()
def golden_of(model: SwitchTransformersForConditionalGeneration, seed: int) -> dict[str, Any] | None:
    """None where a routing decision or a greedy choice is nearly a tie."""
    generator = torch.Generator().manual_seed(seed + 1000)
    source = torch.randint(3, VOCABULARY, (SOURCE_TOKENS,), generator=generator).tolist()
    watched = Watched(model)
    encoded = model.get_encoder()(torch.tensor([source]))
    experts = list(watched.experts)
    rows = decode(model, encoded, GREEDY_TOKENS)
    greedy = [int(logits.argmax()) for logits in rows]
    greedy_margin = min(margin(logits, 1) / logits.std().item() for logits in rows)
    if greedy_margin < SMALLEST_GREEDY_MARGIN or watched.margin < SMALLEST_ROUTING_MARGIN or len(set(greedy)) < 16:
        return None
    golden = describe(seed, watched.margin, greedy_margin, source, torch.stack(rows[:LOGIT_POSITIONS]), greedy, experts)

    def run(target: list[int]) -> tuple[list[torch.Tensor], float]:
        watched.margin = float("inf")
        return decode(model, encoded, len(target), target), watched.margin

    golden |= scored(run, seed, VOCABULARY)
    return golden | {"dropped": sum(not chosen for layer in experts for chosen in layer), "start": START}


def adjust(weights: dict[str, torch.Tensor], seed: int) -> None:
    """One embedding for both halves, decisive routers; what heads add by distance is no smaller than their scores."""
    generator = torch.Generator().manual_seed(seed + 2000)
    for name, value in weights.items():
        if name.endswith("relative_attention_bias.weight"):
            weights[name] = (1.5 * torch.randn(value.shape, generator=generator)).to(torch.bfloat16)
        if name.endswith("router.classifier.weight"):
            weights[name] = 3 * value
        if name.endswith(".embed_tokens.weight"):
            weights[name] = weights["shared.weight"].clone()


def make(name: str, config: SwitchTransformersConfig, folder: pathlib.Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for seed in range(1, 10000):
        model = SwitchTransformersForConditionalGeneration(config)
        weights = random_weights(model, seed)
        adjust(weights, seed)
        model.load_state_dict({k: v.float() for k, v in weights.items()}, strict=False)
        model.eval().float()
        golden = golden_of(model, seed)
        if golden is None:
            continue
        model.to(torch.bfloat16).save_pretrained(folder)
        again = SwitchTransformersForConditionalGeneration.from_pretrained(folder, dtype=torch.float32).eval()
        assert golden_of(again, seed) == golden, "the saved files are not the model"
        (folder / "model.safetensors").chmod(0o644)
        generation = {"decoder_start_token_id": START, "eos_token_id": [2, 7], "pad_token_id": 0}
        (folder / "generation_config.json").write_text(json.dumps(generation, indent=2) + "\n")
        save_tokenizer(folder)
        write_checkpoint(folder, golden)
        print(f"{name}: seed {seed}, {golden['dropped']} dropped", flush=True)
        return
    raise SystemExit(f"{name}: no seed without near ties")


if __name__ == "__main__":
    make_all(__doc__, VARIANTS, make)
