#!/usr/bin/env python3
"""Train a small Switch Transformer on span infilling and save it in Hugging Face format.

Encoder and decoder, every second layer sparse, one expert a token. Muon for the matrices of attention and dense layers,
AdamW for the rest, float32 on the CPU. Weights belong into a cache folder outside the repository:
    train_switch.py ~/.cache/moed/switch-16 --data DATA
The same command goes on where it was interrupted. The same steps give the same weights, on one machine with one thread.
The folder then has the checkpoint, training.json with what was measured on held-out text, and examples of two held-out
texts: calibration.jsonl to plan by, heldout.jsonl to measure on.

Needs torch, transformers, tokenizers, safetensors and numpy.
"""

import argparse
import collections
import dataclasses
import json
import pathlib
import time
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast, SwitchTransformersConfig, SwitchTransformersForConditionalGeneration

import infilling
import tales_corpus
from infilled import END, FIRST_SENTINEL, PAD, SPANS, correct_tokens, until_end
from infilling import Example, Ids
from train_tales import Optimizer

WARM_UP_STEPS = 40
DECAY = 0.3  # share of the steps in which the learning rate falls
SAVE_STEPS = 50
HELD_OUT_CHARACTERS = 400_000  # of each of the two held-out texts
TOKENIZER_CHARACTERS = 1_500_000
TEXT_CHARACTERS = 6_000_000  # to train on
BALANCE_WEIGHT = 0.01
EVALUATED = 300  # examples
TOGETHER = 50  # of them; capacity is counted by example


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("out", type=pathlib.Path, help="folder for the checkpoint, outside the repository; training goes on from what is there")
    add("--data", type=pathlib.Path, required=True, help="folder with text/ (tales_corpus.py names the files)")
    add("--steps", type=int, default=500)
    add("--batch", type=int, default=128, help="examples of processor time a step")
    add("--vocab", type=int, default=512, help="pieces of the tokenizer")
    add("--hidden", type=int, default=64)
    add("--layers", type=int, default=2, help="of the encoder")
    add("--decoder-layers", type=int, default=6)
    add("--heads", type=int, default=4)
    add("--experts", type=int, default=16, help="16 or 32 in the papers")
    add("--ff", type=int, default=192, help="width of an expert and of a dense layer")
    add("--lr", type=float, default=0.02, help="learning rate of Muon")
    add("--alr", type=float, default=5e-3, help="learning rate of AdamW")
    add("--threads", type=int, default=1)
    add("--seed", type=int, default=7)
    return parser.parse_args()


def make_tokenizer(out: pathlib.Path, texts: list[str], vocab: int) -> Tokenizer:
    file = out / "tokenizer.json"
    if not file.exists():
        tokenizer = Tokenizer(models.Unigram())
        tokenizer.normalizer = normalizers.Sequence([normalizers.NFC(), normalizers.Replace("\n", " ")])
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
        tokenizer.decoder = decoders.Metaspace()
        trainer = trainers.UnigramTrainer(
            vocab_size=vocab, special_tokens=list(infilling.SPECIAL_TOKENS), unk_token="<unk>", show_progress=False
        )
        joined = "\n".join(texts)[:TOKENIZER_CHARACTERS]
        tokenizer.train_from_iterator([joined[i : i + 10_000] for i in range(0, len(joined), 10_000)], trainer=trainer)
        tokenizer.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", END)])
        tokenizer.save(str(file), pretty=False)
    tokenizer = Tokenizer.from_file(str(file))
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="</s>", pad_token="<pad>", unk_token="<unk>")
    fast.save_pretrained(out)
    return tokenizer


def token_ids(tokenizer: Tokenizer, texts: list[str]) -> Ids:
    size = tales_corpus.PIECE_CHARACTERS
    pieces = [text[i : i + size] for text in texts for i in range(0, len(text), size)]
    encodings = tokenizer.encode_batch(pieces, add_special_tokens=False)
    return np.concatenate([np.array(encoding.ids, dtype=np.int64) for encoding in encodings])


def divide(stories: list[str]) -> tuple[list[str], list[str], list[str]]:
    """Texts to plan by, to measure on and to train on: no story is in two of them."""
    order = iter(tales_corpus.shuffled_order(len(stories)))
    held_out: list[list[str]] = []
    for _ in range(2):
        part: list[str] = []
        while sum(map(len, part)) < HELD_OUT_CHARACTERS:
            part.append(stories[next(order)])
        held_out.append(part)
    texts = [stories[i] for i in order]
    whole = np.cumsum([len(text) for text in texts])
    return held_out[0], held_out[1], texts[: int(np.searchsorted(whole, TEXT_CHARACTERS)) + 1]


def make_model(arguments: argparse.Namespace) -> SwitchTransformersForConditionalGeneration:
    torch.manual_seed(arguments.seed)
    config = SwitchTransformersConfig(
        vocab_size=arguments.vocab,
        d_model=arguments.hidden,
        d_kv=arguments.hidden // arguments.heads,
        d_ff=arguments.ff,
        num_heads=arguments.heads,
        num_layers=arguments.layers,
        num_decoder_layers=arguments.decoder_layers,
        num_sparse_encoder_layers=arguments.layers // 2,
        num_sparse_decoder_layers=arguments.decoder_layers // 2,
        num_experts=arguments.experts,
        expert_capacity=64,
        router_jitter_noise=0.0,
        dropout_rate=0.0,
        initializer_factor=0.5,
        pad_token_id=PAD,
        eos_token_id=END,
        decoder_start_token_id=PAD,
    )
    model = SwitchTransformersForConditionalGeneration(config)
    for name, parameter in model.named_parameters():
        if name.endswith("router.classifier.weight"):
            torch.nn.init.normal_(parameter, std=0.02)
    return model


class Trained:
    """The model as the optimiser sees it, and how evenly its routers choose."""

    def __init__(self, model: SwitchTransformersForConditionalGeneration) -> None:
        self.model = model
        self.balance: list[torch.Tensor] = []
        for module in model.modules():
            if type(module).__name__ == "SwitchTransformersTop1Router":
                module.register_forward_hook(self._on_router)

    def parameters(self) -> list[torch.nn.Parameter]:
        return list(self.model.parameters())

    def muon_matrices(self) -> list[torch.nn.Parameter]:
        apart = ("shared", "experts", "router", "relative_attention_bias", "lm_head")
        return [p for name, p in self.model.named_parameters() if p.dim() == 2 and not any(word in name for word in apart)]

    def loss(self, source: torch.Tensor, target: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Cross-entropy and what is added to it for uneven routing."""
        self.balance.clear()
        logits = self.model(input_ids=source, labels=target).logits
        cross_entropy = F.cross_entropy(logits.flatten(0, 1), target.flatten())
        return cross_entropy, BALANCE_WEIGHT * torch.stack(self.balance).mean()

    def _on_router(self, _module: torch.nn.Module, _inputs: Any, output: tuple[torch.Tensor, ...]) -> None:
        chosen, _, logits = output
        share = chosen.flatten(0, 1).float().mean(0)
        self.balance.append(logits.shape[-1] * (share * logits.softmax(-1).flatten(0, 1).mean(0)).sum())


def write_pairs(file: pathlib.Path, pairs: list[Example], answers: list[list[int]] | None = None) -> None:
    """One a line, with transformers' greedy answers where there are any."""
    lines = [dataclasses.asdict(pair) for pair in pairs]
    for number, answer in enumerate(answers or []):
        lines[number]["answer"] = answer
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))


def tensors(batch: list[Example]) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.tensor([example.source for example in batch]), torch.tensor([example.target for example in batch])


def rate(step: int, steps: int) -> float:
    return min(1.0, (step + 1) / WARM_UP_STEPS, max(0.03, (1 - step / steps) / DECAY))


def train(trained: Trained, text: Ids, arguments: argparse.Namespace) -> None:
    optimizer = Optimizer(trained, arguments.lr, arguments.alr)
    state, start = arguments.out / "training.pt", 0
    if state.exists():
        saved = torch.load(state)
        trained.model.load_state_dict(saved["model"])
        optimizer.adam.load_state_dict(saved["adam"])
        optimizer.momenta, start = saved["momenta"], saved["step"]
    began = time.process_time()
    for step in range(start, arguments.steps):
        rng = np.random.default_rng((arguments.seed, step))
        source, target = tensors(infilling.examples(text, arguments.batch, rng))
        loss, uneven = trained.loss(source, target)
        (loss + uneven).backward()
        optimizer.step(rate(step, arguments.steps))
        if step % 10 == 0:
            spent = (time.process_time() - began) / (step + 1 - start)
            balance = uneven.item() / BALANCE_WEIGHT
            print(f"step {step} loss {loss.item():.3f} balance {balance:.2f} {spent:.2f} processor seconds a step", flush=True)
        if (step + 1) % SAVE_STEPS == 0 or step + 1 == arguments.steps:
            whole = {"model": trained.model.state_dict(), "adam": optimizer.adam.state_dict(), "momenta": optimizer.momenta}
            torch.save(whole | {"step": step + 1}, state.with_suffix(".part"))
            state.with_suffix(".part").rename(state)


@torch.no_grad()
def forced_accuracy(model: SwitchTransformersForConditionalGeneration, held_out: list[Example]) -> float:
    """Share of masked tokens that are the likeliest after the right ones before them."""
    right = masked = 0
    for first in range(0, len(held_out), TOGETHER):
        source, target = tensors(held_out[first : first + TOGETHER])
        text = target >= FIRST_SENTINEL + SPANS
        right += int(((model(input_ids=source, labels=target).logits.argmax(-1) == target) & text).sum())
        masked += int(text.sum())
    return right / masked


@torch.no_grad()
def greedy_answers(model: SwitchTransformersForConditionalGeneration, held_out: list[Example]) -> list[list[int]]:
    answers: list[list[int]] = []
    for first in range(0, len(held_out), TOGETHER):
        source, target = tensors(held_out[first : first + TOGETHER])
        # Without a cache: transformers makes one of as many layers as the encoder has.
        tokens = model.generate(source, max_new_tokens=target.shape[1], do_sample=False, num_beams=1, use_cache=False)
        answers += [until_end(row) for row in tokens[:, 1:].tolist()]
    return answers


def greedy_accuracy(answers: list[list[int]], held_out: list[Example]) -> float:
    """Share of masked tokens that the model's own answer has at their place."""
    right = sum(correct_tokens(answer, example.target) for answer, example in zip(answers, held_out, strict=True))
    return right / (infilling.MASKED * len(held_out))


def majority_accuracy(text: Ids, held_out: list[Example]) -> float:
    """Share of masked tokens that are the text's most frequent one."""
    likeliest = collections.Counter(text.tolist()).most_common(1)[0][0]
    return sum(example.target.count(likeliest) for example in held_out) / (infilling.MASKED * len(held_out))


def save(
    model: SwitchTransformersForConditionalGeneration, text: Ids, held_out: list[Example], arguments: argparse.Namespace
) -> None:
    """The checkpoint in bfloat16, and what transformers measures of it."""
    model.to(torch.bfloat16).save_pretrained(arguments.out)
    saved = SwitchTransformersForConditionalGeneration.from_pretrained(arguments.out, dtype=torch.float32).eval()
    answers = greedy_answers(saved, held_out)
    write_pairs(arguments.out / "heldout.jsonl", held_out, answers)
    information = {
        "parameters": sum(p.numel() for p in saved.parameters()),
        "examples_seen": arguments.steps * arguments.batch,
        "examples_measured": len(held_out),
        "accuracy": forced_accuracy(saved, held_out),
        "accuracy_greedy": greedy_accuracy(answers, held_out),
        "accuracy_majority": majority_accuracy(text, held_out),
        "arguments": {k: v for k, v in vars(arguments).items() if k not in ("out", "data")},
    }
    (arguments.out / "training.json").write_text(json.dumps(information, indent=1) + "\n")
    print(json.dumps(information, indent=1), flush=True)


def main() -> None:
    arguments = parse_arguments()
    torch.set_num_threads(arguments.threads)
    arguments.out.mkdir(parents=True, exist_ok=True)
    plan_texts, measured_texts, texts = divide(tales_corpus.read_stories(arguments.data))
    tokenizer = make_tokenizer(arguments.out, texts, arguments.vocab)
    held_out: list[Example] = []
    for name, part in (("calibration", plan_texts), ("heldout", measured_texts)):
        held_out = infilling.examples(token_ids(tokenizer, part), EVALUATED, np.random.default_rng(arguments.seed))
        write_pairs(arguments.out / f"{name}.jsonl", held_out)
    tokens = arguments.out / "tokens.npy"
    if not tokens.exists():
        np.save(tokens, token_ids(tokenizer, texts).astype(np.uint16))
    text = np.load(tokens).astype(np.int64)
    print(f"tokens {len(text):,}, characters a token {sum(map(len, texts)) / len(text):.2f}", flush=True)
    model = make_model(arguments)
    print(f"parameters {sum(p.numel() for p in model.parameters()):,}", flush=True)
    train(Trained(model), text, arguments)
    save(model.eval(), text, held_out, arguments)


if __name__ == "__main__":
    main()
