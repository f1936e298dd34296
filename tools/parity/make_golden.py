#!/usr/bin/env python3
"""Make the tiny checkpoints of tests/model/data and their golden outputs.

For each variant of each family: a random checkpoint of awkward sizes in Hugging Face format (bf16 weights), and golden.json
with what transformers computes from these weights in float32: logits of the last prompt positions, the experts chosen for every
prompt token, and 64 greedy tokens. Seeds are tried in order until no routing decision and no greedy choice is nearly a tie, so
that a difference in rounding cannot flip one.

Each golden.json says what it was made with: mixtral, olmoe, qwen2_moe, qwen2_moe_sparse and qwen3_moe with transformers 4.57.6 and
tokenizers 0.22.2, whose parameters have other shapes than in transformers 5; gpt_oss and gpt_oss_mxfp4 with transformers 5.23.0 and
tokenizers 0.23.3. All: torch 2.15.0, safetensors 0.8.0.
"""

import argparse
import importlib.metadata
import json
import pathlib
from typing import Any

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    AutoModelForCausalLM,
    GptOssConfig,
    MixtralConfig,
    OlmoeConfig,
    PretrainedConfig,
    PreTrainedModel,
    Qwen2MoeConfig,
    Qwen3MoeConfig,
)
from transformers.integrations.mxfp4 import FP4_VALUES, convert_moe_packed_tensors

VOCABULARY = 261  # 256 bytes, the special tokens, and a few that the tokenizer does not know
PROMPT_TOKENS = 23
LOGIT_POSITIONS = 4
GREEDY_TOKENS = 64
SMALLEST_GREEDY_MARGIN = 0.004  # between the two best logits, in standard deviations of the logits
SMALLEST_ROUTING_MARGIN = 0.004  # between the logits of the last expert taken and the first one left

COMMON = dict(vocab_size=VOCABULARY, max_position_embeddings=160, bos_token_id=1, eos_token_id=2)
EAGER = dict(attn_implementation="eager", experts_implementation="eager")

VARIANTS = {
    "mixtral": MixtralConfig(
        hidden_size=60,
        num_hidden_layers=3,
        num_attention_heads=3,
        num_key_value_heads=1,
        intermediate_size=20,
        num_local_experts=5,
        num_experts_per_tok=2,
        sliding_window=None,
        rope_theta=1e6,
        **COMMON,
    ),
    "qwen2_moe": Qwen2MoeConfig(
        hidden_size=54,
        num_hidden_layers=2,
        num_attention_heads=9,
        num_key_value_heads=3,
        intermediate_size=70,
        moe_intermediate_size=18,
        shared_expert_intermediate_size=38,
        num_experts=11,
        num_experts_per_tok=3,
        norm_topk_prob=False,
        rope_theta=1e4,
        **COMMON,
    ),
    "qwen2_moe_sparse": Qwen2MoeConfig(
        hidden_size=50,
        num_hidden_layers=6,
        num_attention_heads=5,
        num_key_value_heads=1,
        intermediate_size=42,
        moe_intermediate_size=22,
        shared_expert_intermediate_size=34,
        num_experts=6,
        num_experts_per_tok=2,
        norm_topk_prob=True,
        mlp_only_layers=[3],
        decoder_sparse_step=2,
        qkv_bias=False,
        tie_word_embeddings=True,
        rope_theta=1e4,
        **COMMON,
    ),
    "qwen3_moe": Qwen3MoeConfig(
        hidden_size=46,
        num_hidden_layers=3,
        num_attention_heads=5,
        num_key_value_heads=1,
        head_dim=18,
        intermediate_size=30,
        moe_intermediate_size=18,
        num_experts=7,
        num_experts_per_tok=3,
        norm_topk_prob=True,
        rope_theta=1e6,
        **COMMON,
    ),
    "olmoe": OlmoeConfig(
        hidden_size=60,
        num_hidden_layers=2,
        num_attention_heads=6,
        num_key_value_heads=2,
        intermediate_size=22,
        num_experts=9,
        num_experts_per_tok=4,
        norm_topk_prob=False,
        rope_theta=1e4,
        **COMMON,
    ),
    # The prompt is longer than the window, the text longer than the positions before YaRN; the clamps are often reached.
    "gpt_oss": GptOssConfig(
        hidden_size=44,
        num_hidden_layers=4,
        num_attention_heads=6,
        num_key_value_heads=2,
        head_dim=10,
        intermediate_size=18,
        num_local_experts=6,
        num_experts_per_tok=3,
        sliding_window=7,
        swiglu_limit=1.25,
        rope_parameters=dict(
            rope_type="yarn",
            rope_theta=150000.0,
            factor=4.0,
            beta_fast=4.0,
            beta_slow=0.25,
            truncate=False,
            original_max_position_embeddings=40,
        ),
        **COMMON,
    ),
    # The experts as they are released: blocks of 32 four-bit floats with a scale each.
    "gpt_oss_mxfp4": GptOssConfig(
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=1,
        head_dim=16,
        intermediate_size=32,
        num_local_experts=5,
        num_experts_per_tok=2,
        sliding_window=16,
        rope_parameters=dict(rope_type="yarn", rope_theta=150000.0, factor=2.0, original_max_position_embeddings=64),
        **COMMON,
    ),
}


def random_weights(model: torch.nn.Module, seed: int) -> dict[str, torch.Tensor]:
    """Matrices that keep the scale of their input, routers three times as decisive, norms and biases away from 1 and 0."""
    generator = torch.Generator().manual_seed(seed)
    weights = {}
    for name, parameter in model.named_parameters():
        noise = torch.randn(parameter.shape, generator=generator)
        if name.endswith("norm.weight"):
            value = 1 + 0.2 * noise
        elif name.endswith(".sinks"):
            value = noise
        elif parameter.dim() == 1 or name.endswith("_bias"):
            value = 0.3 * noise
        elif parameter.dim() == 3:  # all experts of a layer, transposed
            value = noise * parameter.shape[1] ** -0.5
        elif "embed_tokens" in name:
            value = noise
        else:
            value = noise * parameter.shape[1] ** -0.5 * (3 if name.endswith((".gate.weight", ".router.weight")) else 1)
        weights[name] = value.to(torch.bfloat16).contiguous()
    return weights


@torch.no_grad()
def run(model: PreTrainedModel, tokens: list[int]) -> tuple[torch.Tensor, list[torch.Tensor]]:
    output = model(torch.tensor([tokens]), use_cache=False, output_router_logits=True)
    routers = [r for r in output.router_logits if r is not None]
    return output.logits[0].float(), routers


def margin(values: torch.Tensor, taken: int) -> float:
    """Smallest gap, over the rows, between the last value taken and the first one left."""
    best = values.topk(taken + 1, -1).values
    return float((best[..., -2] - best[..., -1]).min())


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
    return {
        "made_with": {p: importlib.metadata.version(p) for p in ("transformers", "torch", "tokenizers", "safetensors")},
        "seed": seed,
        "routing_margin": routing_margin,
        "greedy_margin": greedy_margin,
        "prompt": prompt,
        "logits_std": deviation,
        "logits": [[float(f"{v:.8e}") for v in row] for row in last.tolist()],
        "greedy": tokens[PROMPT_TOKENS:],
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


def spell_as_released(path: pathlib.Path, quantized: bool) -> None:
    """rope_parameters of transformers 5 as rope_theta and rope_scaling, which it reads as well."""
    config = json.loads(path.read_text())
    rope = config.pop("rope_parameters", None)
    if rope is not None:
        config["rope_theta"] = rope.pop("rope_theta")
        config["rope_scaling"] = rope if rope["rope_type"] != "default" else None
    if quantized:
        config["quantization_config"] = {"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"]}
    path.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")


def make(name: str, config: PretrainedConfig, folder: pathlib.Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for seed in range(1, 10000):
        torch.manual_seed(seed)
        model = AutoModelForCausalLM.from_config(config, **EAGER)
        weights = random_weights(model, seed)
        quantized = name.endswith("_mxfp4")
        stored = quantize_experts(weights) if quantized else weights
        model.load_state_dict({k: v.float() for k, v in weights.items()}, strict=False)
        model.eval().float()
        golden = golden_of(model, config, seed)
        if golden is None:
            continue
        config.architectures = [type(model).__name__]
        config.dtype = "bfloat16"
        config.save_pretrained(folder)
        spell_as_released(folder / "config.json", quantized)
        (folder / "generation_config.json").write_text(json.dumps({"bos_token_id": 1, "eos_token_id": [2, 7]}, indent=2) + "\n")
        save_file(stored, folder / "model.safetensors", metadata={"format": "pt"})
        (folder / "model.safetensors").chmod(0o644)
        save_tokenizer(folder)
        if not quantized:  # transformers rounds these to bfloat16 where it has no kernels for them
            reloaded = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, **EAGER).eval()
            again, _ = run(reloaded, golden["prompt"])
            assert torch.equal(again, run(model, golden["prompt"])[0]), "the saved files are not the model"
        (folder / "golden.json").write_text(json.dumps(golden) + "\n")
        size = sum(f.stat().st_size for f in folder.iterdir())
        print(
            f"{name}: seed {seed}, routing margin {golden['routing_margin']:.4f}, greedy margin {golden['greedy_margin']:.4f}, "
            f"{size / 1024:.0f} KiB",
            flush=True,
        )
        return
    raise SystemExit(f"{name}: no seed without near ties")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=pathlib.Path, help="folder that gets one subfolder per variant (tests/model/data)")
    parser.add_argument("--only", choices=sorted(VARIANTS), help="make just this variant")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    for name, config in VARIANTS.items():
        if arguments.only in (None, name):
            make(name, config, arguments.out / name)


if __name__ == "__main__":
    main()
