"""A small MoE decoder for training on a CPU: experts stacked in one tensor, tokens sorted by expert, float32 throughout.

The arithmetic is that of the Qwen2-MoE and Mixtral models of transformers; checkpoint_tensors() gives the weights their names.
"""

import dataclasses
import math

import torch
import torch.nn as nn
import torch.nn.functional as F
from transformers import MixtralConfig, PretrainedConfig, Qwen2MoeConfig

ROPE_THETA = 10000.0


@dataclasses.dataclass(frozen=True)
class Shape:
    arch: str  # qwen2_moe or mixtral
    vocab: int
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    experts: int
    top_k: int
    expert_ffn: int
    shared_ffn: int  # qwen2_moe only

    @property
    def head_dim(self) -> int:
        return self.hidden // self.heads

    @property
    def qwen(self) -> bool:
        return self.arch == "qwen2_moe"

    @property
    def eps(self) -> float:
        return 1e-6 if self.qwen else 1e-5


def matrix(*sizes: int, std: float = 0.02) -> nn.Parameter:
    return nn.Parameter(torch.randn(*sizes) * std)


class Layer(nn.Module):
    def __init__(self, shape: Shape):
        super().__init__()
        self.shape = shape
        hidden, q_width, kv_width = shape.hidden, shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
        output_std = 0.02 / math.sqrt(2 * shape.layers)
        self.attention_norm = nn.Parameter(torch.ones(hidden))
        self.ffn_norm = nn.Parameter(torch.ones(hidden))
        self.q, self.k, self.v = matrix(q_width, hidden), matrix(kv_width, hidden), matrix(kv_width, hidden)
        self.o = matrix(hidden, q_width, std=output_std)
        if shape.qwen:
            self.q_bias, self.k_bias, self.v_bias = (nn.Parameter(torch.zeros(n)) for n in (q_width, kv_width, kv_width))
        self.router = matrix(shape.experts, hidden)
        self.gate = matrix(shape.experts, shape.expert_ffn, hidden)
        self.up = matrix(shape.experts, shape.expert_ffn, hidden)
        self.down = matrix(shape.experts, hidden, shape.expert_ffn, std=output_std)
        if shape.qwen:
            self.shared_gate_proj, self.shared_up = matrix(shape.shared_ffn, hidden), matrix(shape.shared_ffn, hidden)
            self.shared_down = matrix(hidden, shape.shared_ffn, std=output_std)
            self.shared_router = matrix(1, hidden)

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x = x + self.attend(F.rms_norm(x, x.shape[-1:], self.attention_norm, self.shape.eps), cos, sin)
        flat = F.rms_norm(x, x.shape[-1:], self.ffn_norm, self.shape.eps).flatten(0, 1)
        y, balance = self.route(flat)
        if self.shape.qwen:
            shared = F.linear(F.silu(F.linear(flat, self.shared_gate_proj)) * F.linear(flat, self.shared_up), self.shared_down)
            y = y + torch.sigmoid(F.linear(flat, self.shared_router)) * shared
        return x + y.view(x.shape), balance

    def attend(self, h: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        batch, length, hidden = h.shape
        q, k, v = F.linear(h, self.q), F.linear(h, self.k), F.linear(h, self.v)
        if self.shape.qwen:
            q, k, v = q + self.q_bias, k + self.k_bias, v + self.v_bias

        def split(y: torch.Tensor, heads: int) -> torch.Tensor:
            return y.view(batch, length, heads, self.shape.head_dim).transpose(1, 2)

        def rotate(y: torch.Tensor) -> torch.Tensor:
            first, second = y.chunk(2, -1)
            return y * cos + torch.cat((-second, first), -1) * sin

        q, k, v = rotate(split(q, self.shape.heads)), rotate(split(k, self.shape.kv_heads)), split(v, self.shape.kv_heads)
        group = self.shape.heads // self.shape.kv_heads
        y = F.scaled_dot_product_attention(q, k.repeat_interleave(group, 1), v.repeat_interleave(group, 1), is_causal=True)
        return F.linear(y.transpose(1, 2).reshape(batch, length, hidden), self.o)

    def route(self, flat: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Outputs of the chosen experts, weighted, and the load-balancing loss."""
        top_k, experts = self.shape.top_k, self.shape.experts
        probabilities = F.softmax(F.linear(flat, self.router), -1)
        weights, chosen = probabilities.topk(top_k, -1)
        if not self.shape.qwen:
            weights = weights / weights.sum(-1, keepdim=True)
        chosen = chosen.reshape(-1)
        counts = torch.bincount(chosen, minlength=experts)
        order = chosen.argsort(stable=True)
        inputs = flat[order // top_k].split(counts.tolist())
        outputs = [
            F.linear(F.silu(F.linear(z, gate)) * F.linear(z, up), down)
            for z, gate, up, down in zip(inputs, self.gate.unbind(0), self.up.unbind(0), self.down.unbind(0), strict=True)
        ]
        y = torch.zeros_like(flat).index_add(0, order // top_k, torch.cat(outputs) * weights.reshape(-1)[order, None])
        return y, experts * ((counts / chosen.numel()).detach() * probabilities.mean(0)).sum()


class Network(nn.Module):
    """Logits and the mean load-balancing loss of token ids (batch, length). The embedding is also the head."""

    def __init__(self, shape: Shape):
        super().__init__()
        self.shape = shape
        self.embedding = matrix(shape.vocab, shape.hidden)
        self.layers = nn.ModuleList(Layer(shape) for _ in range(shape.layers))
        self.final_norm = nn.Parameter(torch.ones(shape.hidden))

    def forward(self, ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        frequencies = ROPE_THETA ** (-torch.arange(0, self.shape.head_dim, 2).float() / self.shape.head_dim)
        angles = torch.outer(torch.arange(ids.shape[1]).float(), frequencies)
        angles = torch.cat((angles, angles), -1)
        cos, sin = angles.cos(), angles.sin()
        x, balance = F.embedding(ids, self.embedding), torch.zeros(())
        for layer in self.layers:
            x, layer_balance = layer(x, cos, sin)
            balance = balance + layer_balance
        x = F.rms_norm(x, x.shape[-1:], self.final_norm, self.shape.eps)
        return F.linear(x, self.embedding), balance / self.shape.layers

    def muon_matrices(self) -> list[nn.Parameter]:
        """What Muon trains; AdamW trains the rest: embedding, routers, norms, biases."""
        return [
            p
            for name, p in self.named_parameters()
            if p.dim() >= 2 and name != "embedding" and not name.endswith((".router", ".shared_router"))
        ]


def checkpoint_tensors(network: Network) -> dict[str, torch.Tensor]:
    """The weights by the names of transformers."""
    shape = network.shape
    tensors = {"model.embed_tokens.weight": network.embedding, "model.norm.weight": network.final_norm}
    block = "mlp" if shape.qwen else "block_sparse_moe"
    projections = ("gate_proj", "up_proj", "down_proj") if shape.qwen else ("w1", "w3", "w2")
    for i, layer in enumerate(network.layers):
        base = f"model.layers.{i}."
        tensors[base + "input_layernorm.weight"] = layer.attention_norm
        tensors[base + "post_attention_layernorm.weight"] = layer.ffn_norm
        for name in "qkvo":
            tensors[f"{base}self_attn.{name}_proj.weight"] = getattr(layer, name)
        tensors[f"{base}{block}.gate.weight"] = layer.router
        if shape.qwen:
            for name in "qkv":
                tensors[f"{base}self_attn.{name}_proj.bias"] = getattr(layer, f"{name}_bias")
            tensors[base + "mlp.shared_expert_gate.weight"] = layer.shared_router
            tensors[base + "mlp.shared_expert.gate_proj.weight"] = layer.shared_gate_proj
            tensors[base + "mlp.shared_expert.up_proj.weight"] = layer.shared_up
            tensors[base + "mlp.shared_expert.down_proj.weight"] = layer.shared_down
        for expert in range(shape.experts):
            for name, stack in zip(projections, (layer.gate, layer.up, layer.down), strict=True):
                tensors[f"{base}{block}.experts.{expert}.{name}.weight"] = stack[expert]
    return tensors


def transformers_config(shape: Shape) -> PretrainedConfig:
    """The config.json that goes with checkpoint_tensors()."""
    common = dict(
        vocab_size=shape.vocab,
        hidden_size=shape.hidden,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        num_experts_per_tok=shape.top_k,
        max_position_embeddings=2048,
        rope_theta=ROPE_THETA,
        rms_norm_eps=shape.eps,
        tie_word_embeddings=True,
        bos_token_id=0,
        eos_token_id=0,
        dtype="bfloat16",
    )
    if shape.qwen:
        return Qwen2MoeConfig(
            architectures=["Qwen2MoeForCausalLM"],
            intermediate_size=shape.shared_ffn,
            moe_intermediate_size=shape.expert_ffn,
            shared_expert_intermediate_size=shape.shared_ffn,
            num_experts=shape.experts,
            decoder_sparse_step=1,
            norm_topk_prob=False,
            **common,
        )
    return MixtralConfig(
        architectures=["MixtralForCausalLM"],
        intermediate_size=shape.expert_ffn,
        num_local_experts=shape.experts,
        sliding_window=None,
        **common,
    )
