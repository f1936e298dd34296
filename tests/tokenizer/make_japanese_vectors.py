#!/usr/bin/env python3
"""Writes data/japanese.vectors.json.xz: a small tokenizer of the kind that GPTSAN-japanese has, and what transformers makes of
texts.

  make_japanese_vectors.py [VOCABULARY EMOJI]       pip install transformers==4.46.3 torch

The vocabulary is made up, in the order that matters: of words that begin together the one with the smallest id is taken. With
the files of a released one their vectors go to standard output instead, to be compared by hand.
"""

import json
import lzma
import pathlib
import random
import sys
import tempfile
from typing import Any

from transformers.models.deprecated.gptsan_japanese import GPTSanJapaneseTokenizer

DATA = pathlib.Path(__file__).parent / "data"
WORDS = [
    "である,で有る", "ました", "日本,にほん,ニホン", "です", "大学,だいがく", "慶応,慶應", "人", "猫", "東京都", "東京", "京都",
    "吾輩,我輩", "は,ハ", "の", "ー", "、", "。", "a", "an", "and", "b", "<", "(", ")", ",", "|", ">", "e", "1", "12", "123",
    "<BR>", "<SP>", "<TAB>", "<URL>", "<BLOCK>", "<KIGOU>", "<U2000U2BFF>",
]  # fmt: skip
CONTROLS = ["startoftext", "inputmask", "separator", "nottoken", "bagoftoken", "segmenter", "endoftext"]
PIECES = [*WORDS, *(f"<|emoji{i}|>" for i in (1, 2, 3)), *(f"<|byte{i}|>" for i in range(256)), *(f"<|{c}|>" for c in CONTROLS)]
# Earlier ones are taken first, even inside of later ones, and out of what earlier ones left.
EMOJI = {
    "emoji": {"😀": "<|emoji1|>", "👨": "<|emoji2|>", "👨‍👩": "<|emoji3|>", "(°°)": "<|emoji1|>", ">＿<": "<|emoji3|>", "1️⃣": "<|emoji2|>", "☀": "<|emoji3|>"},
    "emoji_inv": {"<|emoji1|>": "😀", "<|emoji2|>": "👨", "<|emoji3|>": "☀️"},
}  # fmt: skip
TEXTS = [
    "", " ", "吾輩は猫である。", "実は慶応(慶應)大学出身", "ニホンの東京都、にほんの人。", "東京都京都", "a b\tand\r\nb\nan\r12 1234",
    "a\u3000b—−ー", "😀👨‍👩☀", "😀＿<", " ＿< b", "(°°)(°°", "1️⃣1️", "<SP><BR><BR", "<", "<<SP>", "<|byte65|><|emoji1|>",
    "<|emoji4|>", "<|bagoftoken|>", "¿ÆɁʺ̀ͣ", "“—”‖⸿ⱿⲀ", "é中\U00020000", "█─╿", "a,b", "で有るで有", "<URL>http://a.b/c",
    "mixed 日本 text with ünïcode ✓ and 😀!", "ました" * 5,
]  # fmt: skip


def save(folder: pathlib.Path, words: str, emoji: str) -> GPTSanJapaneseTokenizer:
    (folder / "vocab.txt").write_text(words, encoding="utf-8")
    (folder / "emoji.json").write_text(emoji, encoding="utf-8")
    return GPTSanJapaneseTokenizer(str(folder / "vocab.txt"), str(folder / "emoji.json"))


def cases(tokenizer: GPTSanJapaneseTokenizer, texts: list[str]) -> list[dict[str, Any]]:
    made = []
    for text in texts:
        ids = tokenizer.convert_tokens_to_ids(tokenizer._tokenize(text))
        made.append({"text": text, "ids": ids, "processed": tokenizer("", prefix_text=text)["input_ids"]})
    return made


def decodes(tokenizer: GPTSanJapaneseTokenizer, lists: list[list[int]]) -> list[dict[str, Any]]:
    plain = dict(skip_special_tokens=True, clean_up_tokenization_spaces=False)
    return [{"ids": ids, "text": tokenizer.decode(ids, **plain)} for ids in lists]


def random_texts(generator: random.Random, alphabet: str, count: int) -> list[str]:
    return ["".join(generator.choices(alphabet, k=generator.randrange(1, 24))) for _ in range(count)]


def main() -> None:
    released = [pathlib.Path(path).read_text(encoding="utf-8") for path in sys.argv[1:3]]
    words, emoji = released or ("\n".join(PIECES) + "\n", json.dumps(EMOJI, ensure_ascii=False))
    generator = random.Random(5)
    with tempfile.TemporaryDirectory() as folder:
        tokenizer = save(pathlib.Path(folder), words, emoji)
        keys = [key for key in json.loads(emoji)["emoji"]]
        alphabet = "".join(TEXTS) + "".join(generator.sample(keys, min(len(keys), 400)))
        specials = [f"b<|{name}|>は<|{name}|><|endoftext|>" for name in CONTROLS if name not in ("bagoftoken", "inputmask")]
        texts = TEXTS + random_texts(generator, alphabet, 2000 if released else 150)
        size = tokenizer.vocab_size
        bags = [size - 3, size - 4, size - 1]  # the token that repeats, an unknown one, an end
        first_byte = words.split("\n").index("<|byte0|>")
        of_bytes = [
            [first_byte + byte for byte in text] for text in ("日".encode(), b"\xe6\x97", b"\xffa\xe6", b"\xe6\x97\xa5\xe6")
        ]
        lists = [[*bytes_, *tail] for bytes_ in of_bytes for tail in ([], [2], [bags[0]], [bags[0], bags[0], 2])]
        lists += [[bags[0]], [bags[2], bags[0]], [2, bags[2], bags[0], 3], [bags[1], bags[0], 5]]
        pool = [*range(min(size, 60)), *bags, *(first_byte + i for i in (65, 0xE6, 0x97, 0xA5))]
        lists += [generator.choices(pool, k=generator.randrange(1, 12)) for _ in range(100)]
        parsed = [{"text": text, "ids": tokenizer(text, add_sep_token=False)["input_ids"][1:]} for text in specials]
        vectors: dict[str, Any] = {"cases": cases(tokenizer, texts), "parsed": parsed, "decodes": decodes(tokenizer, lists)}
    if released:
        json.dump(vectors, sys.stdout)
        return
    vectors |= {"vocabulary": words, "emoji": emoji}
    packed = lzma.compress(json.dumps(vectors, ensure_ascii=False).encode(), preset=9 | lzma.PRESET_EXTREME)
    (DATA / "japanese.vectors.json.xz").write_bytes(packed)


if __name__ == "__main__":
    main()
