#!/usr/bin/env python3
"""Writes the golden vectors in data/ with Hugging Face's `tokenizers` (pip install tokenizers==0.22.2).

  make_vectors.py            from the repository's root or anywhere else; deterministic

demo.vectors.json.xz      the demo checkpoint's tokenizer
olmoe.vectors.json.xz     OLMoE's (data/olmoe.tokenizer.json.xz)
features.vectors.json.xz  small tokenizers, each for one feature, with the tokenizer.json itself inside
"""

import json
import lzma
import pathlib
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import tokenizers
from tokenizers import Tokenizer

Json = dict[str, Any]
Added = tuple[str, Json]  # content and flags of an added token

HERE = pathlib.Path(__file__).resolve().parent
DATA = HERE / "data"
SOURCE = f"Hugging Face tokenizers {tokenizers.__version__}"

TEXTS = [
    "",
    " ",
    "  ",
    "   ",
    "\t",
    "\n",
    "\n\n",
    "\t\n",
    " \n ",
    "Hello world",
    " Hello World!",
    "Hello, y'all! How are you?",
    "I'm you'Re we'VE they'LL he'd it'ſ 'tis",
    "w048 7tuijk dsdfhu",
    "3",
    "33",
    "333",
    "3333",
    "3 33 333 3333.5",
    "\r\n\r\n a\r\nb",
    "Führer",
    "нещо на Български",
    "កាន់តែពិសេសអាច",
    "\U0001f680 (normal) \U0001f636‍\U0001f32b️ (multiple emojis)",
    "你好，世界 日本語",
    "नमस्ते ไทย עברית العربية",
    "e\u0301 é A\u030a \u1100\u1161\u11a8 가",
    "a\u00a0b\u3000c\u2028d\u0085e\u180ef\u200bg",
    "\x00\x01\x7f",
    "½ Ⅷ ４５ ²",
    "_a __b$c",
    "🇩🇪👨‍👩‍👧",
    "!!!!!! ??? ...",
    "'",
    "''''",
    " '",
    "= = =\n\t\t\tif x:\n    y",
    "▁▁a ▁",
    'Once upon a time, there was a little girl who lived in the forest.  She had a red cap.\n\n"Where are you going?"',
]


def random_texts(count: int, alphabet: Sequence[str], longest: int, rnd: random.Random) -> list[str]:
    return ["".join(rnd.choice(alphabet) for _ in range(rnd.randrange(1, longest))) for _ in range(count)]


def encode(tokenizer: Tokenizer, text: str, add_special_tokens: bool, parse_special_tokens: bool) -> list[int]:
    tokenizer.encode_special_tokens = not parse_special_tokens
    ids: list[int] = tokenizer.encode(text, add_special_tokens=add_special_tokens).ids
    return ids


def cases(tokenizer: Tokenizer, texts: Iterable[str]) -> list[Json]:
    """ids: special tokens parsed, none added. plain: none parsed. processed: parsed and added. The last two where they differ."""
    written = []
    for text in texts:
        ids = encode(tokenizer, text, False, True)
        others = {"plain": encode(tokenizer, text, False, False), "processed": encode(tokenizer, text, True, True)}
        written.append({"text": text, "ids": ids, **{key: other for key, other in others.items() if other != ids}})
    return written


def decodes(tokenizer: Tokenizer, lists: Iterable[list[int]]) -> list[Json]:
    return [
        {
            "ids": ids,
            "text": tokenizer.decode(ids, skip_special_tokens=True),
            "with_special": tokenizer.decode(ids, skip_special_tokens=False),
        }
        for ids in lists
    ]


def known_ids(tokenizer: Tokenizer) -> list[int]:
    return sorted(tokenizer.get_vocab(with_added_tokens=True).values())


def id_lists(tokenizer: Tokenizer, preferred: Sequence[int], count: int, rnd: random.Random) -> list[list[int]]:
    known = known_ids(tokenizer)
    return [[rnd.choice(preferred if rnd.random() < 0.5 else known) for _ in range(rnd.randrange(1, 20))] for _ in range(count)]


def write(name: str, value: Json) -> None:
    text = json.dumps({"source": SOURCE, **value}, ensure_ascii=True, separators=(",", ":")) + "\n"
    packed = lzma.compress(text.encode(), preset=9 | lzma.PRESET_EXTREME) if name.endswith(".xz") else text.encode()
    (DATA / name).write_bytes(packed)


def write_model_vectors(name: str, description: str) -> None:
    rnd = random.Random(name.removesuffix(".xz"))
    tokenizer = Tokenizer.from_str(description)
    added = [token["content"] for token in json.loads(description)["added_tokens"]]
    texts = TEXTS + [text + rnd.choice(added) + text for text in TEXTS if text]
    texts += random_texts(
        40, ["a", "b", " ", "  ", "'", "'s", "\n", "\t", "1", ".", "é", "e\u0301", "ж", "中", "🦙"] + added, 24, rnd
    )
    bytes_ids = [i for i in known_ids(tokenizer) if "\ufffd" in tokenizer.decode([i])]
    write(name, {"cases": cases(tokenizer, texts), "decodes": decodes(tokenizer, id_lists(tokenizer, bytes_ids, 60, rnd))})


CHARACTERS = list("▁abcdexyzABT'.,! \n12é\u0301e<>_")
MERGES = [
    ["a", "b"],
    ["b", "c"],
    ["▁", "a"],
    ["ab", "c"],
    ["a", "bc"],
    ["▁a", "b"],
    ["x", "x"],
    ["xx", "xx"],
    ["▁", "▁"],
    ["c", "d"],
    ["abc", "d"],
    ["1", "2"],
    ["e", "x"],
    ["▁", "b"],
    [" ", "a"],
    ["'", "d"],
]
BYTE_LEVEL: Json = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
REPLACE_SPACE = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
LLAMA_NORMALIZER = {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"}, REPLACE_SPACE]}
LLAMA_DECODER: Json = {
    "type": "Sequence",
    "decoders": [
        {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
        {"type": "ByteFallback"},
        {"type": "Fuse"},
        {"type": "Strip", "content": " ", "start": 1, "stop": 0},
    ],
}
LLAMA3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
O200K = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
    r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def byte_characters() -> dict[int, str]:
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {**{byte: chr(byte) for byte in printable}, **{byte: chr(0x100 + i) for i, byte in enumerate(others)}}


def byte_level_text(text: str) -> str:
    characters = byte_characters()
    return "".join(characters[byte] for byte in text.encode())


def model(characters: Iterable[str], merges: Sequence[Sequence[str]], extra: Iterable[str] = (), **options: Any) -> Json:
    pieces = list(dict.fromkeys([*extra, *characters, *(left + right for left, right in merges)]))
    return {
        "type": "BPE",
        "dropout": None,
        "unk_token": None,
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": False,
        "byte_fallback": False,
        "ignore_merges": False,
        "vocab": {piece: i for i, piece in enumerate(pieces)},
        "merges": merges,
        **options,
    }


def tokenizer_json(
    bpe: Json,
    normalizer: Json | None = None,
    pre_tokenizer: Json | None = None,
    post_processor: Json | None = None,
    decoder: Json | None = None,
    added: Iterable[Added] = (),
) -> Json:
    tokens, following = [], len(bpe["vocab"])
    for content, flags in added:
        known = bpe["vocab"].get(content)
        token = {
            "id": following if known is None else known,
            "content": content,
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": True,
            **flags,
        }
        following += known is None
        tokens.append(token)
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": tokens,
        "normalizer": normalizer,
        "pre_tokenizer": pre_tokenizer,
        "post_processor": post_processor,
        "decoder": decoder or {"type": "Fuse"},
        "model": bpe,
    }


def byte_level(pre_tokenizer: Json, options: Mapping[str, Any] | None = None, **parts: Any) -> Json:
    merges = [[byte_level_text(left), byte_level_text(right)] for left, right in MERGES if "▁" not in left + right]
    return tokenizer_json(
        model(sorted(byte_characters().values()), merges, **(options or {})),
        pre_tokenizer=pre_tokenizer,
        decoder=BYTE_LEVEL,
        **parts,
    )


def split(pattern: Json, behavior: str = "Isolated", invert: bool = False) -> Json:
    return {"type": "Split", "pattern": pattern, "behavior": behavior, "invert": invert}


def sequence(*steps: Json) -> Json:
    return {"type": "Sequence", "pretokenizers": list(steps)}


def template(before: Iterable[str], after: Iterable[str], specials: Mapping[str, int]) -> Json:
    parts = [{"SpecialToken": {"id": i, "type_id": 0}} for i in before] + [{"Sequence": {"id": "A", "type_id": 0}}]
    parts += [{"SpecialToken": {"id": i, "type_id": 0}} for i in after]
    return {
        "type": "TemplateProcessing",
        "single": parts,
        "pair": parts + [{"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {name: {"id": name, "ids": [i], "tokens": [name]} for name, i in specials.items()},
    }


def features() -> Iterator[tuple[str, Json]]:
    fallback = [f"<0x{byte:02X}>" for byte in range(256)]
    plain = model(CHARACTERS, MERGES)
    yield "unknown characters are dropped", tokenizer_json(plain)
    for fuse in (True, False):
        unk = model(CHARACTERS, MERGES, ["<unk>"], unk_token="<unk>", fuse_unk=fuse)
        yield f"unk_token, fuse_unk {fuse}", tokenizer_json(unk)
        some = model(CHARACTERS, MERGES, ["<unk>", *fallback[:0xE0]], unk_token="<unk>", fuse_unk=fuse, byte_fallback=True)
        yield f"byte_fallback with bytes missing, fuse_unk {fuse}", tokenizer_json(some, decoder=LLAMA_DECODER)
    llama = model(CHARACTERS, MERGES, ["<unk>", "<s>", "</s>", *fallback], unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    specials: list[Added] = [("<s>", {}), ("</s>", {})]
    yield "llama", tokenizer_json(llama, LLAMA_NORMALIZER, None, template(["<s>"], [], {"<s>": 1}), LLAMA_DECODER, specials)
    yield (
        "llama with end of text, merges as strings",
        tokenizer_json(
            {**llama, "merges": [f"{left} {right}" for left, right in MERGES if " " not in left + right]},
            LLAMA_NORMALIZER,
            None,
            template(["<s>"], ["</s>", "</s>"], {"<s>": 1, "</s>": 2}),
            LLAMA_DECODER,
            specials,
        ),
    )
    crossing = model(CHARACTERS, [*MERGES, ["c", "▁"], ["b", "▁a"]], ["<unk>", *fallback], byte_fallback=True)
    yield "merges across spaces", tokenizer_json(crossing, LLAMA_NORMALIZER, decoder=LLAMA_DECODER)
    twice = model(CHARACTERS, [*MERGES, ["a", "b"], ["b", "c"]])
    yield "a merge that is there twice", tokenizer_json(twice)
    yield (
        "ignore_merges",
        tokenizer_json(model(CHARACTERS, MERGES, ["zyx", "ba"], ignore_merges=True), pre_tokenizer=split({"String": " "})),
    )
    yield (
        "strip of two",
        tokenizer_json(
            llama,
            LLAMA_NORMALIZER,
            None,
            None,
            {
                "type": "Sequence",
                "decoders": [*LLAMA_DECODER["decoders"][:3], {"type": "Strip", "content": " ", "start": 2, "stop": 0}],
            },
            specials,
        ),
    )
    for rule in ("first", "always", "never"):
        for splits in (True, False):
            step: Json = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": rule, "split": splits}
            yield f"Metaspace {rule}, split {splits}", tokenizer_json(plain, None, step, None, step, [("<x>", {})])
    for behavior in ("Isolated", "Removed", "MergedWithPrevious", "MergedWithNext", "Contiguous"):
        for invert in (True, False):
            for pattern in ({"String": "a"}, {"Regex": r"\d+|x"}):
                yield (
                    f"Split {pattern} {behavior} {invert}",
                    tokenizer_json(plain, pre_tokenizer=split(pattern, behavior, invert)),
                )
    for individual in (True, False):
        digits = {"type": "Digits", "individual_digits": individual}
        yield f"Digits {individual}", byte_level(sequence(digits, {**BYTE_LEVEL, "use_regex": False}))
    for prefix in (True, False):
        for regex in (True, False):
            step = {**BYTE_LEVEL, "add_prefix_space": prefix, "use_regex": regex}
            yield f"ByteLevel {prefix} {regex}", byte_level(step, post_processor=BYTE_LEVEL, added=[("<x>", {})])
    for name, expression in (("llama 3", LLAMA3), ("o200k", O200K)):
        step = sequence(split({"Regex": expression}), {**BYTE_LEVEL, "use_regex": False})
        yield f"{name} pattern", byte_level(step, options={"ignore_merges": True})
    yield "a prefix for every piece", byte_level(sequence(split({"String": "."}), {**BYTE_LEVEL, "add_prefix_space": True}))
    yield "NFC", byte_level(BYTE_LEVEL, normalizer={"type": "NFC"}, added=[("\u00e9x", {"normalized": True, "special": False})])
    yield (
        "Replace by pattern",
        tokenizer_json(
            plain,
            {
                "type": "Sequence",
                "normalizers": [
                    {"type": "Replace", "pattern": {"Regex": r"\s+|\d"}, "content": "x"},
                    {"type": "Prepend", "prepend": "ab"},
                ],
            },
        ),
    )
    for flag in ("lstrip", "rstrip", "single_word", "normalized"):
        for special in (True, False):
            yield (
                f"added token with {flag}, special {special}",
                tokenizer_json(
                    llama,
                    LLAMA_NORMALIZER,
                    None,
                    None,
                    LLAMA_DECODER,
                    [
                        ("<x>", {flag: True, "special": special}),
                        ("<x>a", {"special": special}),
                        ("<y>", {}),
                        ("ab", {flag: True, "special": special}),
                    ],
                ),
            )
    yield (
        "white space as a token after a token that strips",
        tokenizer_json(
            plain,
            added=[
                ("<x>", {"rstrip": True, "lstrip": True}),
                ("  ", {"special": False}),
                (" ", {"special": False, "rstrip": True}),
            ],
        ),
    )
    yield (
        "processors in sequence",
        byte_level(
            BYTE_LEVEL,
            post_processor={"type": "Sequence", "processors": [BYTE_LEVEL, template(["<x>"], ["<x>"], {"<x>": 5})]},
            added=[("<x>", {})],
        ),
    )


def write_features() -> None:
    rnd = random.Random(3)
    written = []
    for name, description in features():
        text = json.dumps(description)
        tokenizer = Tokenizer.from_str(text)
        added = [token["content"] for token in description["added_tokens"]]
        alphabet = CHARACTERS + ["ab", "abc", "xx", "  ", "ж", "中", "🦙", "▁a", " ", "a", "'D", "12", "\r\n"] + added * 3
        texts = TEXTS[:36:3] + random_texts(24, alphabet, 16, rnd)
        preferred = [i for i in known_ids(tokenizer) if str(tokenizer.id_to_token(i)).startswith("<")] or known_ids(tokenizer)
        written.append(
            {
                "name": name,
                "tokenizer": description,
                "cases": cases(tokenizer, texts),
                "decodes": decodes(tokenizer, id_lists(tokenizer, preferred, 16, rnd)),
            }
        )
    write("features.vectors.json.xz", {"tokenizers": written})


if __name__ == "__main__":
    write_model_vectors("demo.vectors.json.xz", (HERE.parents[1] / "models/tales-qwen/tokenizer.json").read_text())
    write_model_vectors("olmoe.vectors.json.xz", lzma.decompress((DATA / "olmoe.tokenizer.json.xz").read_bytes()).decode())
    write_features()
