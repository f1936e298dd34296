"""The text the tales models are trained on, and which part of it is held out."""

import json
import lzma
import pathlib

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

TokenIds = NDArray[np.uint16]

STORY_FILES = ("text/tinystories/train_head.txt.xz", "text/fairytaleqa_stories.txt.xz", "text/classics_children.txt.xz")
QUESTION_FILE = "eval/gsm8k/train.jsonl.xz"
END_OF_TEXT = "<|endoftext|>"
SPECIAL_TOKENS = (END_OF_TEXT, "<|user|>", "<|assistant|>", "<|end|>")
SHORTEST_TEXT_CHARACTERS = 200
HELD_OUT_TOKENS = 100_000
PIECE_CHARACTERS = 200_000  # a text is tokenised in pieces of this size


def read_stories(data: pathlib.Path) -> list[str]:
    """Stories and books, each whole."""
    texts = []
    for name in STORY_FILES:
        with lzma.open(data / name, "rt", encoding="utf-8") as file:
            stories = (story.strip() for story in file.read().split(END_OF_TEXT))
            texts += [story for story in stories if len(story) > SHORTEST_TEXT_CHARACTERS]
    return texts


def read_texts(data: pathlib.Path) -> list[str]:
    """Stories and books whole, then questions with answers as chats."""
    texts = read_stories(data)
    with lzma.open(data / QUESTION_FILE, "rt", encoding="utf-8") as file:
        for line in file:
            item = json.loads(line)
            texts.append(f"<|user|>{item['question'].strip()}<|assistant|>{item['answer'].strip()}<|end|>")
    return texts


def shuffled_order(count: int) -> list[int]:
    """The order in which the texts follow each other; the first HELD_OUT_TOKENS tokens of that sequence are held out."""
    order = list(range(count))
    np.random.default_rng(0).shuffle(order)
    return order


def token_ids(tokenizer: Tokenizer, text: str) -> TokenIds:
    """A text with the end-of-text token (0) before it."""
    pieces = [text[i : i + PIECE_CHARACTERS] for i in range(0, len(text), PIECE_CHARACTERS)]
    return np.array([0] + [token for encoding in tokenizer.encode_batch(pieces) for token in encoding.ids], dtype=np.uint16)
