"""SmallThinker in torch, which transformers does not have, after the code that PowerInfer published with the models."""

import json
import pathlib
from types import SimpleNamespace
from typing import Any

import torch
from safetensors.torch import save_file
from torch import nn

Config = SimpleNamespace


def smallthinker_variants(common: dict[str, Any]) -> dict[str, Any]:
    sizes = dict(
        hidden_size=46,
        head_dim=10,
        num_attention_heads=6,
        num_key_value_heads=2,
        moe_ffn_hidden_size=14,
        rms_norm_eps=1e-6,
        rope_theta=1e4,
        sliding_window_size=9,
        model_type="smallthinker",
        **common,
    )
    return {
        # As the model of 4 billion parameters.
        "smallthinker": Config(
            num_hidden_layers=3,
            moe_num_primary_experts=7,
            moe_num_active_primary_experts=3,
            moe_primary_router_apply_softmax=False,
            rope_layout=[1, 1, 1],
            sliding_window_layout=[0, 0, 0],
            tie_word_embeddings=True,
            **sizes,
        ),
        # As that of 21 billion: every fourth layer sees all and does not turn.
        "smallthinker_windows": Config(
            num_hidden_layers=5,
            moe_num_primary_experts=6,
            moe_num_active_primary_experts=2,
            moe_primary_router_apply_softmax=True,
            rope_layout=[0, 1, 1, 1, 0],
            sliding_window_layout=[0, 1, 1, 1, 0],
            tie_word_embeddings=False,
            **(sizes | dict(head_dim=12, num_attention_heads=4)),
        ),
    }


def smallthinker_weight(name: str, noise: torch.Tensor) -> torch.Tensor | None:
    """A gate is one of an expert; the router is what is decisive."""
    if name.endswith(".primary_router.weight"):
        return noise * 3 * noise.shape[1] ** -0.5
    return noise * noise.shape[1] ** -0.5 if ".experts." in name else None


class Norm(nn.Module):
    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.weight * (x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.eps))


def linear(rows: int, cols: int) -> nn.Linear:
    return nn.Linear(cols, rows, bias=False)


class Expert(nn.Module):
    def __init__(self, hidden: int, ffn: int) -> None:
        super().__init__()
        self.gate, self.up, self.down = linear(ffn, hidden), linear(ffn, hidden), linear(hidden, ffn)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(torch.relu(self.gate(x)) * self.up(x))


class SmallThinkerExperts(nn.ModuleList):
    def forward(self, x: torch.Tensor, index: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        outputs = torch.stack([expert(x) for expert in self], dim=1)  # (tokens, experts, hidden)
        chosen = outputs.gather(1, index.unsqueeze(-1).expand(-1, -1, x.shape[-1]))
        return (weights.unsqueeze(-1) * chosen).sum(1)


class Block(nn.Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        self.primary_router = linear(config.moe_num_primary_experts, config.hidden_size)
        experts = range(config.moe_num_primary_experts)
        self.experts = SmallThinkerExperts(Expert(config.hidden_size, config.moe_ffn_hidden_size) for _ in experts)
        self.top_k, self.softmax = config.moe_num_active_primary_experts, config.moe_primary_router_apply_softmax

    def forward(self, read_by_router: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        logits, index = torch.topk(self.primary_router(read_by_router), self.top_k, dim=-1)
        scores = logits.softmax(-1) if self.softmax else logits.sigmoid()
        return self.experts(x, index, scores / scores.sum(-1, keepdim=True))


class Attention(nn.Module):
    def __init__(self, config: Config, layer: int) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.dim = config.num_attention_heads, config.num_key_value_heads, config.head_dim
        self.q_proj = linear(self.heads * self.dim, config.hidden_size)
        self.k_proj = linear(self.kv_heads * self.dim, config.hidden_size)
        self.v_proj = linear(self.kv_heads * self.dim, config.hidden_size)
        self.o_proj = linear(config.hidden_size, self.heads * self.dim)
        self.theta = config.rope_theta if config.rope_layout[layer] else None
        self.window = config.sliding_window_size if config.sliding_window_layout[layer] else None

    def turn(self, x: torch.Tensor) -> torch.Tensor:
        if self.theta is None:
            return x
        frequencies = 1.0 / self.theta ** (torch.arange(0, self.dim, 2, dtype=torch.float32) / self.dim)
        angles = torch.outer(torch.arange(x.shape[1], dtype=torch.float32), frequencies)
        a, b = x.chunk(2, -1)
        return torch.cat((a * angles.cos() - b * angles.sin(), b * angles.cos() + a * angles.sin()), -1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        tokens = x.shape[0]
        q = self.turn(self.q_proj(x).view(tokens, self.heads, self.dim).transpose(0, 1))
        k = self.turn(self.k_proj(x).view(tokens, self.kv_heads, self.dim).transpose(0, 1))
        v = self.v_proj(x).view(tokens, self.kv_heads, self.dim).transpose(0, 1)
        k, v = (rows.repeat_interleave(self.heads // self.kv_heads, 0) for rows in (k, v))
        behind = torch.arange(tokens).unsqueeze(1) - torch.arange(tokens)
        unseen = (behind < 0) | (behind >= (self.window or tokens))
        scores = (q @ k.transpose(1, 2) * self.dim**-0.5).masked_fill(unseen, float("-inf"))
        return self.o_proj((scores.softmax(-1) @ v).transpose(0, 1).reshape(tokens, -1))


class Layer(nn.Module):
    def __init__(self, config: Config, layer: int) -> None:
        super().__init__()
        self.self_attn = Attention(config, layer)
        self.block_sparse_moe = Block(config)
        self.input_layernorm = Norm(config.hidden_size, config.rms_norm_eps)
        self.post_attention_layernorm = Norm(config.hidden_size, config.rms_norm_eps)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        attended = x + self.self_attn(self.input_layernorm(x))
        return attended + self.block_sparse_moe(x, self.post_attention_layernorm(attended))


class Decoder(nn.Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(Layer(config, layer) for layer in range(config.num_hidden_layers))
        self.norm = Norm(config.hidden_size, config.rms_norm_eps)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embed_tokens(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.norm(x)


class SmallThinkerForCausalLM(nn.Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.model = Decoder(config)
        self.lm_head = linear(config.vocab_size, config.hidden_size)
        if config.tie_word_embeddings:
            self.lm_head.weight = self.model.embed_tokens.weight

    def forward(self, tokens: torch.Tensor, **_: Any) -> SimpleNamespace:
        return SimpleNamespace(logits=self.lm_head(self.model(tokens[0])).unsqueeze(0))


def save_smallthinker(model: SmallThinkerForCausalLM, folder: pathlib.Path) -> None:
    tensors = {name: tensor.to(torch.bfloat16).contiguous() for name, tensor in model.state_dict().items()}
    if model.config.tie_word_embeddings:
        del tensors["lm_head.weight"]
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    described = vars(model.config) | {
        "architectures": ["SmallThinkerForCausalLM"],
        "model_name": "smallthinker_tiny",
        "norm_topk_prob": True,
        "rope_scaling": None,
        "torch_dtype": "bfloat16",
    }
    (folder / "config.json").write_text(json.dumps(described, indent=2, sort_keys=True) + "\n")
