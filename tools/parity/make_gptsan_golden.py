#!/usr/bin/env python3
"""Make the tiny GPTSAN-japanese checkpoints of tests/model/data and their golden outputs.

As make_golden.py does for decoders: random checkpoints of awkward sizes and, in golden.json.xz, what transformers computes from
them in float32. Of a prompt with a prefix: the experts of every token, none where its expert was full, and how often that was.
Then 64 greedy tokens, each step with the keys and values of those before, and the logits that chose the first ones; and in the
same way the log probabilities of a target that follows.

Made with transformers 4.46.3, the last that has the model, torch 2.15.0, safetensors 0.8.0 and tokenizers 0.20.3. The vocabulary
is made up.
"""

import json
import pathlib
from typing import Any

import torch
from transformers.models.deprecated.gptsan_japanese import GPTSanJapaneseConfig, GPTSanJapaneseForConditionalGeneration

from golden import (
    GREEDY_TOKENS,
    LOGIT_POSITIONS,
    SMALLEST_GREEDY_MARGIN,
    SMALLEST_ROUTING_MARGIN,
    describe,
    make_all,
    margin,
    scored,
    write_checkpoint,
)

PROMPT_TOKENS = 41
WORDS = [
    "の",
    "は",
    "人,ひと",
    "日本,にほん",
    "猫",
    "である",
    "<BR>",
    "<SP>",
    "<TAB>",
    "<BLOCK>",
    "<KIGOU>",
    "<U2000U2BFF>",
    "<|emoji1|>",
]
CONTROLS = ["startoftext", "inputmask", "separator", "nottoken", "bagoftoken", "segmenter", "endoftext"]
PIECES = [*WORDS, *(f"<|byte{i}|>" for i in range(256)), *(f"<|{name}|>" for name in CONTROLS)]
SEPARATOR, END, PAD = (PIECES.index(f"<|{name}|>") for name in ("segmenter", "endoftext", "separator"))
EMOJI = {"emoji": {"😀": "<|emoji1|>", "😃": "<|emoji1|>"}, "emoji_inv": {"<|emoji1|>": "😀"}}

COMMON = dict(
    vocab_size=len(PIECES) + 3,  # a few that the tokenizer does not know
    max_position_embeddings=160,
    separator_token_id=SEPARATOR,
    pad_token_id=PAD,
    eos_token_id=END,
)

VARIANTS = {
    # Experts are full, a part of the prompt is a prefix, layers without experts follow.
    "gptsan_japanese": GPTSanJapaneseConfig(
        d_model=28,
        num_heads=2,
        d_ff=12,
        d_ext=20,
        d_spout=2,
        num_switch_layers=2,
        num_ext_layers=1,
        num_experts=5,
        expert_capacity=6,
        **COMMON,
    ),
    # All of the prompt is a prefix; a router with a bias.
    "gptsan_japanese_plain": GPTSanJapaneseConfig(
        d_model=20,
        num_heads=2,
        d_ff=18,
        d_spout=0,
        num_switch_layers=3,
        num_experts=3,
        expert_capacity=64,
        router_bias=True,
        **COMMON,
    ),
}
PREFIX_TOKENS = {"gptsan_japanese": 17, "gptsan_japanese_plain": PROMPT_TOKENS - 1}


class Watched:
    """What the routers choose while a model runs, and how close they were to another choice."""

    def __init__(self, model: torch.nn.Module) -> None:
        self.experts: list[list[list[int]]] = []
        self.margin = float("inf")
        for module in model.modules():
            if type(module).__name__ == "GPTSanJapaneseTop1Router":
                module.register_forward_hook(self.on_router)

    def on_router(self, _module: torch.nn.Module, _inputs: Any, output: tuple[torch.Tensor, ...]) -> None:
        chosen, _, logits = output
        self.margin = min(self.margin, margin(logits[0], 1))
        self.experts.append([row.nonzero().flatten().tolist() for row in chosen[0]])


def decode(
    model: GPTSanJapaneseForConditionalGeneration, prompt: list[int], prefix: int, count: int, target: list[int] | None = None
) -> list[torch.Tensor]:
    """Logits that choose the first tokens behind the prompt: those of the target, or greedy ones."""
    tokens, types, past, rows = prompt, [1] * prefix + [0] * (len(prompt) - prefix), None, []
    for i in range(count):
        step = model(torch.tensor([tokens]), token_type_ids=torch.tensor([types]), past_key_values=past, use_cache=True)
        past, logits = step.past_key_values, step.logits[0, -1].float()
        tokens, types = [target[i] if target else int(logits.argmax())], [0]
        rows.append(logits)
    return rows


@torch.no_grad()
def golden_of(model: GPTSanJapaneseForConditionalGeneration, seed: int, prefix: int) -> dict[str, Any] | None:
    """None where a routing decision or a greedy choice is nearly a tie."""
    generator = torch.Generator().manual_seed(seed + 1000)
    prompt = torch.randint(0, len(WORDS) + 256, (PROMPT_TOKENS,), generator=generator).tolist()
    prompt[prefix] = SEPARATOR
    watched = Watched(model)
    rows = decode(model, prompt, prefix, GREEDY_TOKENS)
    experts = watched.experts[: len(watched.experts) // GREEDY_TOKENS]
    greedy = [int(logits.argmax()) for logits in rows]
    greedy_margin = min(margin(logits, 1) / logits.std().item() for logits in rows)
    if greedy_margin < SMALLEST_GREEDY_MARGIN or watched.margin < SMALLEST_ROUTING_MARGIN or len(set(greedy)) < 16:
        return None
    golden = describe(seed, watched.margin, greedy_margin, prompt, torch.stack(rows[:LOGIT_POSITIONS]), greedy, experts)

    def run(target: list[int]) -> tuple[list[torch.Tensor], float]:
        watched.margin = float("inf")
        return decode(model, prompt, prefix, len(target), target), watched.margin

    golden |= scored(run, seed, len(WORDS) + 256)
    return golden | {"dropped": sum(not chosen for layer in experts for chosen in layer), "prefix": prefix}


def random_weights(model: torch.nn.Module, seed: int) -> dict[str, torch.Tensor]:
    """Matrices that keep the scale of their input, decisive routers, norms and biases away from 1 and 0."""
    generator = torch.Generator().manual_seed(seed)
    weights = {}
    for name, value in [*model.named_parameters(), *model.named_buffers()]:
        noise = torch.randn(value.shape, generator=generator)
        if name.endswith("norm.weight"):
            noise = 1 + 0.2 * noise
        elif value.dim() == 1 or name.endswith("_bias"):
            noise = 0.3 * noise
        elif "embed" not in name:
            noise = noise * value.shape[1] ** -0.5 * (3 if "classifier" in name else 1)
        weights[name] = noise.to(torch.bfloat16).contiguous()
    return weights


def save_tokenizer(folder: pathlib.Path) -> None:
    (folder / "vocab.txt").write_text("\n".join(PIECES) + "\n", encoding="utf-8")
    (folder / "emoji.json").write_text(json.dumps(EMOJI, ensure_ascii=False) + "\n", encoding="utf-8")


def make(name: str, config: GPTSanJapaneseConfig, folder: pathlib.Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for seed in range(1, 10000):
        model = GPTSanJapaneseForConditionalGeneration(config)
        weights = random_weights(model, seed)
        model.load_state_dict({k: v.float() for k, v in weights.items()}, strict=False)
        golden = golden_of(model.eval().float(), seed, PREFIX_TOKENS[name])
        if golden is None:
            continue
        model.to(torch.bfloat16).save_pretrained(folder)
        again = GPTSanJapaneseForConditionalGeneration.from_pretrained(folder, torch_dtype=torch.float32).eval()
        assert golden_of(again, seed, PREFIX_TOKENS[name]) == golden, "the saved files are not the model"
        (folder / "model.safetensors").chmod(0o644)
        (folder / "generation_config.json").unlink(missing_ok=True)
        save_tokenizer(folder)
        write_checkpoint(folder, golden)
        print(f"{name}: seed {seed}, {golden['dropped']} dropped", flush=True)
        return
    raise SystemExit(f"{name}: no seed without near ties")


if __name__ == "__main__":
    make_all(__doc__, VARIANTS, make)
