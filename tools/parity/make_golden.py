#!/usr/bin/env python3
"""Make the tiny checkpoints of tests/model/data and their golden outputs.

For each variant of each family: a random checkpoint of awkward sizes in Hugging Face format (bf16 weights, compressed), and
golden.json.xz with what transformers computes from these weights in float32: logits of the last prompt positions, the experts
chosen for every prompt token, and 64 greedy tokens. Seeds are tried in order until no routing decision and no greedy choice is
nearly a tie, so that a difference in rounding cannot flip one.

Each golden.json.xz says what it was made with: mixtral, olmoe, qwen2_moe, qwen2_moe_sparse and qwen3_moe with transformers 4.57.6
and tokenizers 0.22.2, whose parameters have other shapes than in transformers 5; the others with transformers 5.23.0 and
tokenizers 0.23.3, but golden_yarn.json.xz, golden_llama3.json.xz, kimi_linear, hy_v3 and those of variants_sigmoid.py,
variants_later.py and variants_whole.py with 5.24.0 and 0.23.3. All: torch 2.15.0, safetensors 0.8.0.
"""

import itertools
import json
import pathlib
from typing import Any

import torch
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, PretrainedConfig, PreTrainedModel
from transformers.integrations.mxfp4 import FP4_VALUES, convert_moe_packed_tensors

from golden import (
    GREEDY_TOKENS,
    LOGIT_POSITIONS,
    SMALLEST_GREEDY_MARGIN,
    SMALLEST_ROUTING_MARGIN,
    describe,
    make_all,
    margin,
    save_tokenizer,
    write_checkpoint,
    write_golden,
)
from released_form import EAGER, kind_of, save_as_released, spell_as_released
from smallthinker import SmallThinkerForCausalLM, smallthinker_weight
from variants import COMMON, VARIANTS, VOCABULARY
from variants_gemma4 import gemma4_weight
from variants_kimi import kimi_weight
from variants_latent import latent_variants
from variants_later import flex_olmo_weight, later_variants, llama4_weight
from variants_recurrent import delta_net_weight, recurrent_weight
from variants_sigmoid import sigmoid_variants
from variants_whole import whole_variants

PROMPT_TOKENS = 23
SMALLEST_SCORE_MARGIN = 0.0002  # the same of scores from 0 to 1; a tenth of it between two weights of a token

OWN_WEIGHTS: dict[str, Any] = dict.fromkeys(("qwen3_next", "qwen3_5_moe_text"), delta_net_weight)
OWN_WEIGHTS |= dict.fromkeys(("lfm2_moe", "granitemoehybrid", "nemotron_h"), recurrent_weight)
OWN_WEIGHTS["gemma4_text"] = gemma4_weight
OWN_WEIGHTS |= {"llama4_text": llama4_weight, "flex_olmo": flex_olmo_weight}
OWN_WEIGHTS["kimi_linear"] = kimi_weight
OWN_WEIGHTS["smallthinker"] = smallthinker_weight

# Of a router, added to its scores for the choice alone.
CORRECTIONS = ("e_score_correction_bias", ".expert_bias")

# With smaller ones, rounding keys and values to 8 bits flips a routing decision, llama.cpp's converter rounds a decay otherwise,
# or the same token follows again and again.
FIRST_SEED = {"ernie4_5_moe": 9, "phimoe": 7, "granitemoehybrid": 2, "gemma4_text": 117, "bailing_moe": 4}
FIRST_SEED["smallthinker_windows"] = 3

SHORT_YARN: dict[str, Any] = dict(
    rope_type="yarn", factor=4.0, beta_fast=4.0, beta_slow=0.25, original_max_position_embeddings=40
)

# Scaled rotations, of contexts shorter than the text or about as long: what config.json says otherwise, and the file it goes to.
OTHER_ROPES: dict[str, tuple[str, dict[str, Any]]] = {
    "qwen3_next_experts": ("golden_yarn.json.xz", SHORT_YARN),
    # A part of each head turns and has no norm.
    "glm4v_moe": ("golden_yarn.json.xz", SHORT_YARN),
    "granitemoe": (
        "golden_llama3.json.xz",
        dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=100),
    ),
}

# Saved by transformers itself, which gives the tensors the names of released checkpoints.
SAVED_AS_RELEASED: tuple[str, ...] = (
    "glm4_moe",
    "ernie4_5_moe",
    "minimax_m2",
    "hunyuan_v1_moe",
    "granitemoe",
    "minicpm",
    "phimoe",
    "phimoe_longrope",
    "mellum",
    "mellum_experts",
    "gemma4_text",
    "deepseek",
)
SAVED_AS_RELEASED += (*latent_variants(COMMON), "qwen3_next", "qwen3_next_experts", "lfm2_moe")
SAVED_AS_RELEASED += ("granitemoehybrid", "granitemoehybrid_rope", "nemotron_h", "kimi_linear", "hy_v3")
SAVED_AS_RELEASED += (*sigmoid_variants(COMMON),)
SAVED_AS_RELEASED += (*later_variants(COMMON),)
SAVED_AS_RELEASED += (*whole_variants(COMMON),)
SAVED_AS_RELEASED += ("laguna", "laguna_elements", "bailing_moe", "bailing_moe_v2", "smallthinker", "smallthinker_windows")


def random_weights(model: torch.nn.Module, seed: int) -> dict[str, torch.Tensor]:
    """Matrices that keep the scale of their input, routers three times as decisive, norms and biases away from 1 and 0.

    The routers of DeepSeek-V2 and Mistral 4 are not: the margins are between shares of a softmax, which are then too small.
    """
    decisive = 1 if model.config.model_type in ("deepseek_v2", "mistral4") else 3
    generator = torch.Generator().manual_seed(seed)
    weights = {}
    learned = (*CORRECTIONS, "layer_scalar")
    buffers = [(name, buffer) for name, buffer in model.named_buffers() if name.endswith(learned)]
    for name, parameter in [*model.named_parameters(), *buffers]:
        noise = torch.randn(parameter.shape, generator=generator)
        own = OWN_WEIGHTS[model.config.model_type](name, noise) if model.config.model_type in OWN_WEIGHTS else None
        if own is not None:
            value = own
        elif name.endswith(CORRECTIONS):
            value = 0.15 * noise
        elif name.endswith(("norm.weight", "norm_f.weight")):
            value = 1 + 0.2 * noise
        elif name.endswith(".sinks"):
            value = noise
        elif parameter.dim() == 1 or name.endswith("_bias"):
            value = 0.3 * noise
        elif parameter.dim() == 3:  # all experts of a layer; gpt-oss transposes them
            value = noise * parameter.shape[1 if model.config.model_type == "gpt_oss" else 2] ** -0.5
        elif "embed_tokens" in name:
            value = noise
        else:
            value = (
                noise
                * parameter.shape[1] ** -0.5
                * (decisive if name.endswith((".gate.weight", ".router.weight", ".gate.wg.weight")) else 1)
            )
        weights[name] = value.to(torch.bfloat16).contiguous()
    return weights


class Routing:
    """What the layers' experts are given while a model runs, and how close the router was to another choice."""

    def __init__(self, model: PreTrainedModel) -> None:
        self.experts: list[list[list[int]]] = []
        self.margin = float("inf")
        for module in model.modules():
            if type(module).__name__ == "Llama4Router":
                module.register_forward_hook(self.on_llama4)
            elif type(module).__name__.endswith("Experts") and type(module).__name__ != "Llama4TextExperts":
                module.register_forward_pre_hook(self.on_experts)
            if type(module).__name__ == "PhimoeTopKRouter":
                module.register_forward_hook(self.on_sparsemixer)

    def on_experts(self, module: torch.nn.Module, inputs: tuple[torch.Tensor, ...]) -> None:
        index, weights = inputs[1:]
        order = torch.argsort(weights, dim=-1, descending=True, stable=True)
        # Gemma 4's have factors of the experts; the router chose in this order.
        chosen = index if type(module).__name__ == "Gemma4TextExperts" else index.gather(-1, order)
        self.experts.append(chosen.tolist())
        descending = weights.gather(-1, order)
        ties = (descending[..., :-1] - descending[..., 1:])[descending[..., 1:] != descending[..., :-1]]
        if ties.numel() > 0:
            self.margin = min(self.margin, 10 * float(ties.min()))

    def on_llama4(self, module: torch.nn.Module, _: Any, output: tuple[torch.Tensor, ...]) -> None:
        self.experts.append(output[0].topk(module.top_k, -1).indices.tolist())

    def on_sparsemixer(self, module: torch.nn.Module, _: Any, output: tuple[torch.Tensor, ...]) -> None:
        best = output[0].topk(3, -1).values
        self.margin = min(self.margin, float((best[..., :-1] - best[..., 1:]).min()))
        for first in range(2):
            of = best[..., first : first + 1]
            distance = (of - output[0]) / output[0].abs().clamp(min=of) - 2 * module.router_jitter_noise
            self.margin = min(self.margin, float(distance.abs().min()))

    def topk(self, values: torch.Tensor, k: int, dim: int = -1, **options: Any) -> Any:
        if k < values.shape[dim]:
            best = TOPK(values, k + 1, dim=dim).values
            self.margin = min(self.margin, float((best[..., -2] - best[..., -1]).min()))
        return TOPK(values, k, dim=dim, **options)


TOPK = torch.topk


@torch.no_grad()
def run_watched(model: PreTrainedModel, routing: Routing, tokens: list[int]) -> torch.Tensor:
    routing.experts = []
    torch.topk = routing.topk
    torch.Tensor.topk = lambda values, *arguments, **options: routing.topk(values, *arguments, **options)
    try:
        return model(torch.tensor([tokens]), use_cache=False).logits[0].float()
    finally:
        torch.topk = TOPK
        torch.Tensor.topk = TENSOR_TOPK


TENSOR_TOPK = torch.Tensor.topk


def watched_golden_of(model: PreTrainedModel, seed: int) -> dict[str, Any] | None:
    """As golden_of, for routers of any kind: the experts of a token are in the order of their weights."""
    generator = torch.Generator().manual_seed(seed + 1000)
    prompt = torch.randint(3, VOCABULARY, (PROMPT_TOKENS,), generator=generator).tolist()
    routing = Routing(model)
    last = run_watched(model, routing, prompt)[-LOGIT_POSITIONS:]
    experts = routing.experts
    deviation = last.std().item()
    tokens = list(prompt)
    greedy_margin = float("inf")
    for _ in range(GREEDY_TOKENS):
        logits = run_watched(model, routing, tokens)[-1]
        greedy_margin = min(greedy_margin, margin(logits, 1) / deviation)
        if greedy_margin < SMALLEST_GREEDY_MARGIN or routing.margin < SMALLEST_SCORE_MARGIN:
            return None
        tokens.append(logits.argmax().item())
    return describe(seed, routing.margin, greedy_margin, prompt, last, tokens[PROMPT_TOKENS:], experts)


@torch.no_grad()
def run(model: PreTrainedModel, tokens: list[int]) -> tuple[torch.Tensor, list[torch.Tensor]]:
    output = model(torch.tensor([tokens]), use_cache=False, output_router_logits=True)
    routers = [r for r in output.router_logits if r is not None]
    return output.logits[0].float(), routers


def golden_of(model: PreTrainedModel, config: PretrainedConfig, seed: int) -> dict[str, Any] | None:
    """None where a routing decision or a greedy choice is nearly a tie."""
    generator = torch.Generator().manual_seed(seed + 1000)
    prompt = torch.randint(3, VOCABULARY, (PROMPT_TOKENS,), generator=generator).tolist()
    logits, routers = run(model, prompt)
    top_k = config.num_experts_per_tok
    experts = [router.topk(top_k, -1).indices.tolist() for router in routers]
    last = logits[-LOGIT_POSITIONS:]
    deviation = last.std().item()

    tokens = list(prompt)
    greedy_margin = float("inf")
    for _ in range(GREEDY_TOKENS):
        step_logits, routers = run(model, tokens)
        greedy_margin = min(greedy_margin, margin(step_logits[-1], 1) / deviation)
        if greedy_margin < SMALLEST_GREEDY_MARGIN:
            return None
        tokens.append(step_logits[-1].argmax().item())
    routing_margin = min(margin(router, top_k) for router in routers)
    if routing_margin < SMALLEST_ROUTING_MARGIN:
        return None
    return describe(seed, routing_margin, greedy_margin, prompt, last, tokens[PROMPT_TOKENS:], experts)


def to_mxfp4(weights: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Blocks and scales of the nearest numbers of (experts, inputs, outputs), as gpt-oss has them: outputs before inputs."""
    rows = weights.float().transpose(1, 2)
    groups = rows.reshape(*rows.shape[:2], rows.shape[2] // 32, 32)
    exponents = groups.abs().amax(-1).log2().floor() - 2
    scaled = groups / exponents.exp2().unsqueeze(-1)
    codes = (scaled.unsqueeze(-1) - torch.tensor(FP4_VALUES)).abs().argmin(-1).to(torch.uint8)
    return codes[..., 0::2] | codes[..., 1::2] << 4, (exponents + 127).to(torch.uint8)


def quantize_experts(weights: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Puts the numbers of MXFP4 in place of the experts' and returns what a checkpoint has of them."""
    stored = {}
    for name, value in weights.items():
        if value.dim() != 3:
            stored[name] = value
            continue
        blocks, scales = to_mxfp4(value)
        stored[f"{name}_blocks"], stored[f"{name}_scales"] = blocks.contiguous(), scales.contiguous()
        weights[name] = convert_moe_packed_tensors(blocks, scales, dtype=torch.float32)
    return stored


class Open(torch.nn.Module):
    """A gate whose sigmoid is 1."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.full((*x.shape[:-1], 1), 1e4)


def open_shared_gates(model: PreTrainedModel) -> None:
    for layer in model.model.layers:
        if hasattr(layer.mlp, "shared_expert_gate"):
            layer.mlp.shared_expert_gate = Open()


def golden_with_rope(
    config: PretrainedConfig, rope: dict[str, Any], weights: dict[str, torch.Tensor], seed: int
) -> dict[str, Any] | None:
    """As watched_golden_of, of a model that differs in what `rope` says."""
    text = config.get_text_config()
    changed: dict[str, Any] = {"rope_parameters": text.rope_parameters | rope}
    if text is not config:
        changed = {"text_config": text.to_dict() | changed}
    model = kind_of(config).from_config(type(config)(**(config.to_dict() | changed)), **EAGER)
    model.load_state_dict({k: v.float() for k, v in weights.items()}, strict=False)
    return watched_golden_of(model.eval().float(), seed)


def golden_of_long_context(config: PretrainedConfig, weights: dict[str, torch.Tensor], seed: int) -> dict[str, Any] | None:
    """All positions turn as those of long contexts.

    transformers would take the frequencies of short ones and the factor of long ones, and only from where a text is long.
    """
    rope = config.rope_parameters
    return golden_with_rope(config, {"short_factor": rope["long_factor"], "short_mscale": rope["long_mscale"]}, weights, seed)


def golden_of_rope(config: PretrainedConfig, rope: dict[str, Any], weights: dict[str, torch.Tensor]) -> dict[str, Any]:
    """What config.json says of it goes with the outputs.

    The weights are given, so prompts are tried in order until one has no near tie.
    """
    tried = (golden_with_rope(config, rope, weights, seed) for seed in itertools.count(1))
    said = {"rope_scaling": rope}
    whole = config.get_text_config() is not config
    return next(golden for golden in tried if golden is not None) | {"config": {"text_config": said} if whole else said}


def make(name: str, config: PretrainedConfig, folder: pathlib.Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for seed in range(FIRST_SEED.get(name, 1), 10000):
        torch.manual_seed(seed)
        own = SmallThinkerForCausalLM if name.startswith("smallthinker") else None
        model = own(config) if own else kind_of(config).from_config(config, **EAGER)
        weights = random_weights(model, seed)
        quantized = name.endswith("_mxfp4")
        stored = quantize_experts(weights) if quantized else weights
        model.load_state_dict({k: v.float() for k, v in weights.items()}, strict=False)
        model.eval().float()
        released = name in SAVED_AS_RELEASED
        if name in ("deepseek", "bailing_moe"):
            open_shared_gates(model)
        golden = watched_golden_of(model, seed) if released else golden_of(model, config, seed)
        if golden is None:
            continue
        config.architectures = [type(model).__name__]
        config.dtype = "bfloat16"
        if released:
            save_as_released(name, model, config, folder, golden["prompt"])
        else:
            config.save_pretrained(folder)
            spell_as_released(folder / "config.json", quantized)
            save_file(stored, folder / "model.safetensors", metadata={"format": "pt"})
            (folder / "model.safetensors").chmod(0o644)
            if not quantized:  # transformers rounds these to bfloat16 where it has no kernels for them
                reloaded = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, **EAGER).eval()
                again, _ = run(reloaded, golden["prompt"])
                assert torch.equal(again, run(model, golden["prompt"])[0]), "the saved files are not the model"
        if name in OTHER_ROPES:
            file, rope = OTHER_ROPES[name]
            write_golden(folder / file, golden_of_rope(config, rope, weights))
        if name == "phimoe_longrope":
            long = golden_of_long_context(config, weights, seed)
            if long is None:
                continue
            write_golden(folder / "golden_long.json.xz", long)
            golden["max_context"] = config.rope_parameters["original_max_position_embeddings"]
        (folder / "generation_config.json").write_text(json.dumps({"bos_token_id": 1, "eos_token_id": [2, 7]}, indent=2) + "\n")
        save_tokenizer(folder)
        write_checkpoint(folder, golden)
        size = sum(f.stat().st_size for f in folder.iterdir())
        print(
            f"{name}: seed {seed}, routing margin {golden['routing_margin']:.4f}, greedy margin {golden['greedy_margin']:.4f}, "
            f"{size / 1024:.0f} KiB",
            flush=True,
        )
        return
    raise SystemExit(f"{name}: no seed without near ties")


if __name__ == "__main__":
    make_all(__doc__, VARIANTS, make)
