"""Checkpoints of make_golden.py under the names, and in the forms, in which the models of their families were released."""

import json
import pathlib
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, AutoModelForImageTextToText, PretrainedConfig, PreTrainedModel

from smallthinker import save_smallthinker
from variants_kimi import as_kimi_linear
from variants_ling import as_bailing

EAGER = dict(attn_implementation="eager", experts_implementation="eager")


def kind_of(config: PretrainedConfig) -> Any:
    """The class that makes a model of a configuration; a whole one sees as well."""
    return AutoModelForImageTextToText if hasattr(config, "text_config") else AutoModelForCausalLM


def spell_as_released(path: pathlib.Path, quantized: bool) -> None:
    """rope_parameters of transformers 5 as rope_theta and rope_scaling, which it reads as well."""
    whole = json.loads(path.read_text())
    config = whole.get("text_config", whole)
    rope = config.pop("rope_parameters", None)
    if rope is not None and "rope_theta" not in rope:  # by type of layer
        config["rope_parameters"] = rope
    elif rope is not None:
        config["rope_theta"] = rope.pop("rope_theta")
        partial = rope.pop("partial_rotary_factor", None)
        if partial is not None and config["model_type"] == "minimax_m2":
            config["rotary_dim"] = round(partial * config["head_dim"])
        elif partial is not None:
            config["partial_rotary_factor"] = partial
        config["rope_scaling"] = rope if rope != {"rope_type": "default"} else None
    blocks = config.pop("layers_block_type", None)
    if blocks is not None:
        letters = {"linear_attention": "M", "full_attention": "*", "moe": "E", "mlp": "-"}
        config["hybrid_override_pattern"] = "".join(letters[block] for block in blocks)
        config |= {"norm_eps": config["layer_norm_epsilon"], "num_hidden_layers": len(blocks), "rope_theta": 10000}
    for full in config.pop("per_layer_config", {}).values():  # the same for each
        config |= {"global_head_dim": full["head_dim"], "num_global_key_value_heads": full["num_key_value_heads"]}
    if quantized:
        config["quantization_config"] = {"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"]}
    path.write_text(json.dumps(whole, indent=2, sort_keys=True) + "\n")


def as_deepseek(folder: pathlib.Path, config: PretrainedConfig) -> None:
    """The names of DeepSeekMoE-16B's published checkpoint and configuration."""
    tensors = load_file(folder / "model.safetensors")
    renamed = {name.replace(".shared_expert.", ".shared_experts."): tensor for name, tensor in tensors.items()}
    save_file(renamed, folder / "model.safetensors", metadata={"format": "pt"})
    names = "hidden_size num_hidden_layers num_attention_heads num_key_value_heads intermediate_size moe_intermediate_size"
    names += (
        " vocab_size max_position_embeddings bos_token_id eos_token_id norm_topk_prob num_experts_per_tok rms_norm_eps hidden_act"
    )
    published = {name: getattr(config, name) for name in names.split()} | {
        "architectures": ["DeepseekForCausalLM"],
        "attention_bias": False,
        "dtype": "bfloat16",
        "first_k_dense_replace": 1,
        "model_type": "deepseek",
        "moe_layer_freq": 1,
        "n_routed_experts": config.num_experts,
        "n_shared_experts": config.shared_expert_intermediate_size // config.moe_intermediate_size,
        "rope_scaling": None,
        "rope_theta": 1e4,
        "scoring_func": "softmax",
        "tie_word_embeddings": False,
    }
    (folder / "config.json").write_text(json.dumps(published, indent=2, sort_keys=True) + "\n")


def as_minicpm(folder: pathlib.Path, config: PretrainedConfig) -> None:
    """The names of MiniCPM-MoE-8x2B's published checkpoint and configuration."""
    published: dict[str, Any] = {}
    for name, tensor in load_file(folder / "model.safetensors").items():
        name = name.replace(".block_sparse_moe.router.layer.", ".mlp.gate.")
        block = name.partition(".block_sparse_moe.")[0] + ".mlp.experts."
        if name.endswith("input_linear.weight"):
            for expert, halves in enumerate(tensor):
                gate, up = halves.chunk(2)
                published |= {f"{block}{expert}.w1.weight": gate.clone(), f"{block}{expert}.w3.weight": up.clone()}
        elif name.endswith("output_linear.weight"):
            published |= {f"{block}{expert}.w2.weight": matrix.clone() for expert, matrix in enumerate(tensor)}
        else:
            published[name] = tensor
    save_file(published, folder / "model.safetensors", metadata={"format": "pt"})
    names = "hidden_size num_hidden_layers num_attention_heads num_key_value_heads intermediate_size vocab_size"
    names += " max_position_embeddings bos_token_id eos_token_id num_experts_per_tok rms_norm_eps hidden_act"
    described = {name: getattr(config, name) for name in names.split()} | {
        "architectures": ["MiniCPMForCausalLM"],
        "dim_model_base": 20,
        "model_type": "minicpm",
        "num_experts": config.num_local_experts,
        "rope_scaling": None,
        "rope_theta": 1e4,
        "scale_depth": 1.4,
        "scale_emb": 1.5,
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
    }
    (folder / "config.json").write_text(json.dumps(described, indent=2, sort_keys=True) + "\n")


def as_released_sight(folder: pathlib.Path) -> None:
    """Qwen3-VL's experts with inputs before outputs."""
    tensors = load_file(folder / "model.safetensors")
    fused = (".experts.gate_up_proj", ".experts.down_proj")
    turned = {name: tensor.transpose(1, 2).contiguous() if name.endswith(fused) else tensor for name, tensor in tensors.items()}
    save_file(turned, folder / "model.safetensors", metadata={"format": "pt"})


def save_as_released(
    name: str, model: PreTrainedModel, config: PretrainedConfig, folder: pathlib.Path, prompt: list[int]
) -> None:
    with torch.no_grad():
        expected = model(torch.tensor([prompt]), use_cache=False).logits
        if name.startswith("smallthinker"):
            save_smallthinker(model, folder)
            return
        model.to(torch.bfloat16).save_pretrained(folder)
        if name == "deepseek":
            as_deepseek(folder, config)
        elif name == "minicpm":
            as_minicpm(folder, config)
        elif name.startswith("bailing_moe"):
            as_bailing(name, folder, config)
        else:
            spell_as_released(folder / "config.json", False)
            if name == "kimi_linear":
                as_kimi_linear(folder)
            if name == "qwen3_vl_moe_experts":
                as_released_sight(folder)
            again = kind_of(config).from_pretrained(folder, dtype=torch.float32, **EAGER).eval()
            assert torch.equal(again(torch.tensor([prompt]), use_cache=False).logits, expected), (
                "the saved files are not the model"
            )
    (folder / "model.safetensors").chmod(0o644)
