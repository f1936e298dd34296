"""The supported model families: which tensors a checkpoint of a family has, their shapes, and how often each axis is repeated."""

import dataclasses
from collections.abc import Iterator
from typing import Any

from .errors import WidenError

Config = dict[str, Any]  # config.json, nothing of which is checked yet


@dataclasses.dataclass(frozen=True)
class Family:
    block: str  # the Mixture-of-Experts block within a layer
    projections: tuple[str, str, str]  # gate, up, down of an expert
    expert_ffn: str  # config key of an expert's width
    qkv_bias: bool = False  # default of the config key
    qk_norm: str | None = None  # "head": one weight a channel of a head; "width": one a channel of q, of k
    shared_expert: bool = False
    dense_layers: bool = False  # some layers may have no experts


HF = ("gate_proj", "up_proj", "down_proj")
FAMILIES = {
    "mixtral": Family("block_sparse_moe", ("w1", "w3", "w2"), "intermediate_size"),
    "olmoe": Family("mlp", HF, "intermediate_size", qk_norm="width"),
    "qwen2_moe": Family("mlp", HF, "moe_intermediate_size", qkv_bias=True, shared_expert=True, dense_layers=True),
    "qwen3_moe": Family("mlp", HF, "moe_intermediate_size", qk_norm="head", dense_layers=True),
}
# Config keys that grow with the factor. head_dim stays: there are more heads instead.
WIDENED_KEYS = (
    "hidden_size",
    "intermediate_size",
    "moe_intermediate_size",
    "shared_expert_intermediate_size",
    "num_attention_heads",
    "num_key_value_heads",
)
EXPERT_COUNT_KEYS = ("num_experts", "num_local_experts")
MAX_INT = 1 << 24


@dataclasses.dataclass(frozen=True)
class Axis:
    size: int  # in the checkpoint that is read
    copies: int  # of it in the one that is written


@dataclasses.dataclass(frozen=True)
class Tensor:
    name: str  # written
    source: str  # read
    axes: tuple[Axis, ...]  # rows and columns of a matrix, or the one axis of a vector
    split: bool  # the column copies share the weight, for they are summed; otherwise they repeat it

    def source_shape(self) -> tuple[int, ...]:
        return tuple(axis.size for axis in self.axes)

    def shape(self) -> tuple[int, ...]:
        return tuple(axis.size * axis.copies for axis in self.axes)


def _integer(config: Config, key: str, default: int | None = None) -> int:
    value = config.get(key)
    if value is None:
        value = default
    if value is None:
        raise WidenError(f"config.json: key {key} is missing")
    if type(value) is not int or not 1 <= value <= MAX_INT:
        raise WidenError(f"config.json: {key} = {value!r} is not supported; allowed: an integer from 1 to {MAX_INT}")
    return value


def _boolean(config: Config, key: str, default: bool) -> bool:
    value = config.get(key)
    if value is not None and type(value) is not bool:
        raise WidenError(f"config.json: {key} = {value!r} is not supported; allowed: true, false")
    return default if value is None else value


def family_of(config: Config) -> Family:
    name = config.get("model_type")
    if not isinstance(name, str) or name not in FAMILIES:
        raise WidenError(f"config.json: model_type = {name!r} is not supported; allowed: {', '.join(FAMILIES)}")
    if config.get("quantization_config") is not None:
        raise WidenError("config.json: quantization_config is not supported; widen the checkpoint it was quantised from")
    return FAMILIES[name]


def widened_config(config: Config, factor: int) -> Config:
    """The config of the widened checkpoint."""
    widened = dict(config)
    for key in WIDENED_KEYS:
        if config.get(key) is not None:
            widened[key] = _integer(config, key) * factor
    widened["tie_word_embeddings"] = False
    return widened


def _weight(name: str, *axes: Axis, source: str | None = None, split: bool = True) -> Tensor:
    return Tensor(f"{name}.weight", f"{source or name}.weight", axes, split)


class TensorList:
    """Iterates over all tensors of a checkpoint that is widened by `factor`, in the order in which they are written."""

    def __init__(self, config: Config, factor: int):
        self.config = config
        self.family = family_of(config)
        self.factor = factor
        self.hidden = self._wide("hidden_size")

    def _wide(self, key: str) -> Axis:
        return Axis(_integer(self.config, key), self.factor)

    def __iter__(self) -> Iterator[Tensor]:
        vocabulary = Axis(_integer(self.config, "vocab_size"), 1)
        embedding = "model.embed_tokens"
        yield _weight(embedding, vocabulary, self.hidden, split=False)
        for layer in range(_integer(self.config, "num_hidden_layers")):
            yield from self._layer(layer, f"model.layers.{layer}")
        yield _weight("model.norm", self.hidden)
        tied = _boolean(self.config, "tie_word_embeddings", False)
        yield _weight("lm_head", vocabulary, self.hidden, source=embedding if tied else None)

    def _layer(self, layer: int, name: str) -> Iterator[Tensor]:
        yield _weight(f"{name}.input_layernorm", self.hidden)
        yield from self._attention(f"{name}.self_attn")
        yield _weight(f"{name}.post_attention_layernorm", self.hidden)
        if self._has_experts(layer):
            yield from self._experts(f"{name}.{self.family.block}")
        else:
            yield from self._ffn(f"{name}.mlp", HF, self._wide("intermediate_size"))

    def _head_widths(self) -> tuple[int, int, int]:
        """Sizes of q, of k and v, of one head."""
        heads = _integer(self.config, "num_attention_heads")
        kv_heads = _integer(self.config, "num_key_value_heads", heads)
        if heads % kv_heads != 0:
            raise WidenError(f"config.json: num_attention_heads = {heads} is no multiple of num_key_value_heads = {kv_heads}")
        if self.config.get("head_dim") is None and self.hidden.size % heads != 0:
            raise WidenError(
                f"config.json: hidden_size = {self.hidden.size} is no multiple of num_attention_heads = {heads} "
                "and there is no head_dim"
            )
        head_dim = _integer(self.config, "head_dim", self.hidden.size // heads)
        return heads * head_dim, kv_heads * head_dim, head_dim

    def _attention(self, name: str) -> Iterator[Tensor]:
        q_width, kv_width, head_dim = self._head_widths()
        q, kv = Axis(q_width, self.factor), Axis(kv_width, self.factor)
        for part, width in (("q", q), ("k", kv), ("v", kv)):
            yield _weight(f"{name}.{part}_proj", width, self.hidden)
            if _boolean(self.config, "qkv_bias", self.family.qkv_bias):
                bias = f"{name}.{part}_proj.bias"
                yield Tensor(bias, bias, (width,), False)
            if part != "v" and self.family.qk_norm is not None:
                yield _weight(f"{name}.{part}_norm", width if self.family.qk_norm == "width" else Axis(head_dim, 1))
        yield _weight(f"{name}.o_proj", self.hidden, q)

    def _has_experts(self, layer: int) -> bool:
        if not self.family.dense_layers:
            return True
        dense = self.config.get("mlp_only_layers") or []
        if not isinstance(dense, list):
            raise WidenError(f"config.json: mlp_only_layers = {dense!r} is not supported; allowed: a list of layers")
        return (layer + 1) % _integer(self.config, "decoder_sparse_step", 1) == 0 and layer not in dense

    def _experts(self, name: str) -> Iterator[Tensor]:
        key = next((key for key in EXPERT_COUNT_KEYS if self.config.get(key) is not None), EXPERT_COUNT_KEYS[0])
        experts = _integer(self.config, key)
        yield _weight(f"{name}.gate", Axis(experts, 1), self.hidden)
        for expert in range(experts):
            yield from self._ffn(f"{name}.experts.{expert}", self.family.projections, self._wide(self.family.expert_ffn))
        if self.family.shared_expert:
            yield from self._ffn(f"{name}.shared_expert", HF, self._wide("shared_expert_intermediate_size"))
            yield _weight(f"{name}.shared_expert_gate", Axis(1, 1), self.hidden)

    def _ffn(self, name: str, projections: tuple[str, str, str], ffn: Axis) -> Iterator[Tensor]:
        gate, up, down = projections
        yield _weight(f"{name}.{gate}", ffn, self.hidden)
        yield _weight(f"{name}.{up}", ffn, self.hidden)
        yield _weight(f"{name}.{down}", self.hidden, ffn)
