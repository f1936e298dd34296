#!/usr/bin/env python3
"""Train a small but real MoE language model on stories and save it in Hugging Face format.

Muon for the matrices, AdamW for the rest, float32 on the CPU. models/tales-qwen was made with
    train_tales.py models/tales-qwen --data DATA --minutes 100
(training.json beside the weights has every argument; the result depends on the speed of the machine through --minutes). At
the end the saved checkpoint is compared with the model that was trained, as transformers computes it.

Needs torch, transformers, tokenizers, safetensors and numpy.
"""

import argparse
import json
import math
import pathlib
import time
from collections.abc import Iterable
from typing import Protocol

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast

import tales_corpus
from tales_corpus import TokenIds
from tales_model import Network, Shape, checkpoint_tensors, transformers_config

CHAT_TEMPLATE = (
    "{% for m in messages %}{% if m['role'] == 'user' %}<|user|>{{ m['content'] }}{% else %}<|assistant|>{{ m['content'] }}"
    "<|end|>{% endif %}{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
WARM_UP_STEPS = 40
SAVE_SECONDS = 1200
SAMPLES = (
    "Once upon a time",
    "The old king said to his daughter",
    "<|user|>Tom has 3 apples and buys 4 more. How many apples does he have?<|assistant|>",
)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("out", type=pathlib.Path, help="folder for the checkpoint; a tokenizer.json that is there already is used")
    add("--data", type=pathlib.Path, required=True, help="folder with text/ and eval/ (tales_corpus.py names the files)")
    add("--arch", choices=("qwen2_moe", "mixtral"), default="qwen2_moe")
    add("--minutes", type=float, default=60, help="time to train; the learning rate falls over the second half of it")
    add("--maxsteps", type=int, default=10**9, help="end after so many steps if that is sooner")
    add("--vocab", type=int, default=4096, help="pieces of the tokenizer")
    add("--hidden", type=int, default=192)
    add("--layers", type=int, default=8)
    add("--heads", type=int, default=6)
    add("--kv", type=int, default=2, help="key and value heads")
    add("--experts", type=int, default=32)
    add("--topk", type=int, default=4, help="experts a token")
    add("--ff", type=int, default=96, help="width of an expert")
    add("--shared", type=int, default=192, help="width of the shared expert (qwen2_moe)")
    add("--ctx", type=int, default=256, help="tokens of a training sequence")
    add("--batch", type=int, default=16, help="sequences a step")
    add("--lr", type=float, default=0.02, help="learning rate of Muon")
    add("--alr", type=float, default=4e-3, help="learning rate of AdamW")
    add("--aux", type=float, default=0.01, help="weight of the load-balancing loss")
    add("--threads", type=int, default=1)
    add("--seed", type=int, default=7)
    return parser.parse_args()


def make_tokenizer(out: pathlib.Path, texts: list[str], vocab: int) -> Tokenizer:
    file = out / "tokenizer.json"
    if not file.exists():
        tokenizer = Tokenizer(models.BPE())
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = decoders.ByteLevel()
        trainer = trainers.BpeTrainer(
            vocab_size=vocab,
            special_tokens=list(tales_corpus.SPECIAL_TOKENS),
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        )
        pieces = (text[i : i + 100_000] for text in texts for i in range(0, len(text), 100_000))
        tokenizer.train_from_iterator(pieces, trainer=trainer)
        tokenizer.save(str(file), pretty=False)
    tokenizer = Tokenizer.from_file(str(file))
    end = tales_corpus.END_OF_TEXT
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=end, bos_token=end, pad_token=end)
    fast.chat_template = CHAT_TEMPLATE
    fast.save_pretrained(out)
    return tokenizer


def random_batch(source: TokenIds, rng: np.random.Generator, rows: int, context: int) -> torch.Tensor:
    starts = rng.integers(0, len(source) - context - 1, rows)
    return torch.from_numpy(np.stack([source[i : i + context + 1] for i in starts]).astype(np.int64))


def orthogonalized(gradient: torch.Tensor) -> torch.Tensor:
    """The nearest matrix with singular values near 1, by five Newton-Schulz steps."""
    x = gradient.mT if gradient.size(-2) > gradient.size(-1) else gradient
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(5):
        a = x @ x.mT
        x = 3.4445 * x + (-4.7750 * a + 2.0315 * (a @ a)) @ x
    return x.mT if gradient.size(-2) > gradient.size(-1) else x


class Trainable(Protocol):
    """What Muon trains, and all that is trained."""

    def muon_matrices(self) -> list[torch.nn.Parameter]: ...

    def parameters(self) -> Iterable[torch.nn.Parameter]: ...


class Optimizer:
    def __init__(self, network: Trainable, muon_rate: float, adam_rate: float):
        self.matrices = network.muon_matrices()
        self.momenta = [torch.zeros_like(p) for p in self.matrices]
        taken = {id(p) for p in self.matrices}
        self.rest = [p for p in network.parameters() if id(p) not in taken]
        self.adam = torch.optim.AdamW(self.rest, lr=adam_rate, betas=(0.9, 0.97), weight_decay=0.0, fused=True)
        self.muon_rate, self.adam_rate = muon_rate, adam_rate

    def step(self, scale: float) -> None:
        """One step with the learning rates times `scale`; gradients are gone afterwards."""
        with torch.no_grad():
            for p, momentum in zip(self.matrices, self.momenta, strict=True):
                momentum.lerp_(p.grad, 0.05)
                gradient = p.grad.lerp(momentum, 0.95)
                p.mul_(1 - self.muon_rate * scale * 0.02)
                p.add_(orthogonalized(gradient), alpha=-self.muon_rate * scale * max(1, p.size(-2) / p.size(-1)) ** 0.5)
                p.grad = None
        for group in self.adam.param_groups:
            group["lr"] = self.adam_rate * scale
        torch.nn.utils.clip_grad_norm_(self.rest, 1.0)
        self.adam.step()
        self.adam.zero_grad(set_to_none=True)


@torch.no_grad()
def evaluate(network: Network, held_out: TokenIds, context: int) -> float:
    rng = np.random.default_rng(1)
    losses: list[float] = []
    for _ in range(8):
        ids = random_batch(held_out, rng, 16, context)
        losses.append(F.cross_entropy(network(ids[:, :-1])[0].flatten(0, 1), ids[:, 1:].reshape(-1)).item())
    return sum(losses) / len(losses)


def save(network: Network, out: pathlib.Path, arguments: argparse.Namespace, steps: int, loss: float | None) -> None:
    tensors = {name: t.detach().to(torch.bfloat16).contiguous().clone() for name, t in checkpoint_tensors(network).items()}
    save_file(tensors, out / "model.safetensors", metadata={"format": "pt"})
    transformers_config(network.shape).save_pretrained(out)
    info = {
        "arch": arguments.arch,
        "parameters": sum(p.numel() for p in network.parameters()),
        "steps": steps,
        "tokens_seen": steps * arguments.batch * arguments.ctx,
        "val_loss": loss,
        "args": {k: v for k, v in vars(arguments).items() if k not in ("out", "data")},
    }
    (out / "training.json").write_text(json.dumps(info, indent=1))


def train(network: Network, source: TokenIds, arguments: argparse.Namespace) -> int:
    """Until time or steps are up; returns the number of steps."""
    optimizer = Optimizer(network, arguments.lr, arguments.alr)
    rng = np.random.default_rng(arguments.seed)
    start = saved = time.time()
    running, step = None, 0
    while True:
        elapsed = time.time() - start
        fraction = max(elapsed / (arguments.minutes * 60), step / arguments.maxsteps)
        if fraction >= 1:
            return step
        ids = random_batch(source, rng, arguments.batch, arguments.ctx)
        logits, balance = network(ids[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].reshape(-1))
        (loss + arguments.aux * balance).backward()
        optimizer.step(min(1, (step + 1) / WARM_UP_STEPS) * min(1.0, max(0.03, (1 - fraction) / 0.5)))
        running = loss.item() if running is None else 0.95 * running + 0.05 * loss.item()
        step += 1
        if step <= 5 or step % 20 == 0:
            elapsed = time.time() - start
            rate = step * arguments.batch * arguments.ctx / max(1, elapsed)
            print(f"{elapsed:7.0f}s step {step} loss {running:.3f} balance {balance.item():.3f} tokens/s {rate:.0f}", flush=True)
        if time.time() - saved > SAVE_SECONDS:
            save(network, arguments.out, arguments, step, None)
            saved = time.time()


@torch.no_grad()
def compare_with_transformers(network: Network, tokenizer: Tokenizer, held_out: TokenIds, arguments: argparse.Namespace) -> None:
    model = AutoModelForCausalLM.from_pretrained(arguments.out, dtype=torch.float32).eval()
    ids = random_batch(held_out, np.random.default_rng(2), 4, arguments.ctx)[:, :-1]
    difference = (model(ids).logits - network(ids)[0]).abs().max().item()
    print(f"largest logit difference from transformers (bf16 weights): {difference:.4f}")
    for prompt in SAMPLES:
        ids = torch.tensor([[0] + tokenizer.encode(prompt).ids])
        output = model.generate(ids, max_new_tokens=80, do_sample=True, temperature=0.7, top_p=0.95)
        print("---", tokenizer.decode(output[0].tolist(), skip_special_tokens=False), flush=True)


def main() -> None:
    arguments = parse_arguments()
    torch.manual_seed(arguments.seed)
    torch.set_num_threads(arguments.threads)
    arguments.out.mkdir(parents=True, exist_ok=True)
    texts = tales_corpus.read_texts(arguments.data)
    tokenizer = make_tokenizer(arguments.out, texts, arguments.vocab)
    ids = np.concatenate([tales_corpus.token_ids(tokenizer, texts[i]) for i in tales_corpus.shuffled_order(len(texts))])
    held_out, source = ids[: tales_corpus.HELD_OUT_TOKENS], ids[tales_corpus.HELD_OUT_TOKENS :]
    print(f"tokens {len(ids):,}, characters a token {sum(map(len, texts)) / len(ids):.2f}", flush=True)

    network = Network(
        Shape(
            arguments.arch,
            arguments.vocab,
            arguments.hidden,
            arguments.layers,
            arguments.heads,
            arguments.kv,
            arguments.experts,
            arguments.topk,
            arguments.ff,
            arguments.shared,
        )
    )
    print(f"parameters {sum(p.numel() for p in network.parameters()):,}", flush=True)
    steps = train(network, source, arguments)
    loss = evaluate(network, held_out, arguments.ctx)
    save(network, arguments.out, arguments, steps, loss)
    print(f"loss on held-out text {loss:.4f}, perplexity {math.exp(loss):.2f}, {steps} steps", flush=True)
    compare_with_transformers(network, tokenizer, held_out, arguments)


if __name__ == "__main__":
    main()
