#!/usr/bin/env python3
"""Writes core/tokenizer/newer_characters.h, and golden vectors for it in data/, with Hugging Face's `tokenizers`.

  make_newer_characters.py   from the repository's root or anywhere else; pip install tokenizers==0.23.3; Python 3.11

Python 3.11 knows the characters that PCRE2 10.42 does, those of Unicode 14; the reference's Oniguruma knows more.
"""

import json
import lzma
import pathlib
import unicodedata
from collections.abc import Iterable, Iterator
from typing import Any

import tokenizers
from tokenizers import Regex, Tokenizer, pre_tokenizers

Json = dict[str, Any]

HERE = pathlib.Path(__file__).resolve().parent
CATEGORIES = ["L", "Ll", "Lm", "Lo", "Lu", "M", "Mc", "Mn", "N", "Nd", "No", "P", "Pd", "Po", "S", "Sm", "So"]
PATTERNS = [
    *(rf"\p{{{name}}}" for name in ["L", "M", "N", "P", "S", "Ll", "Lm", "Lo", "Nd", "Han"]),
    *[r"\P{L}", r"\p{^N}", r"\d", r"\D", r"[\p{Lu}\p{Lt}]", r"[^\r\n\p{L}\p{P}\p{S}-]", r"[\d-]"],
]
DEEPSEEK = [  # DeepSeek-V3's
    r"\p{N}{1,3}",
    r"[一-龥぀-ゟ゠-ヿ]+",
    r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*"""
    r"""|\s*[\r\n]+|\s+(?!\S)|\s+""",
]


def split(pattern: str, behavior: str) -> Json:
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": behavior, "invert": False}


def tokenizer_json(
    pre_tokenizer: Json, decoder: Json, vocabulary: Iterable[str], merges: list[list[str]], unk: str | None
) -> Json:
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [],
        "normalizer": None,
        "pre_tokenizer": pre_tokenizer,
        "post_processor": None,
        "decoder": decoder,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": unk,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": {piece: i for i, piece in enumerate(vocabulary)},
            "merges": merges,
        },
    }


def newer(name: str) -> list[tuple[int, int]]:
    """Ranges of those that the reference has under the name, and that were assigned after Unicode 14."""
    every = "".join(chr(c) for c in range(0x110000) if not 0xD800 <= c < 0xE000 and unicodedata.category(chr(c)) == "Cn")
    cut = pre_tokenizers.Split(Regex(rf"\p{{{name}}}+"), "removed", invert=True)
    ranges: list[tuple[int, int]] = []
    for code in sorted(ord(c) for piece, _ in cut.pre_tokenize_str(every) for c in piece):
        if ranges and ranges[-1][1] == code - 1:
            ranges[-1] = (ranges[-1][0], code)
        else:
            ranges.append((code, code))
    return ranges


def literals(ranges: Iterable[tuple[int, int]]) -> Iterator[str]:
    line = ""
    for first, last in ranges:
        line += rf"\\x{{{first:x}}}-\\x{{{last:x}}}"
        if len(line) > 90:
            yield f'"{line}"'
            line = ""
    if line:
        yield f'"{line}"'


def write_header() -> None:
    rows = []
    for name in [*CATEGORIES, "Han"]:
        rows.append(f'    {{"{name}",\n     ' + "\n     ".join(literals(newer(name))) + "},\n")
    (HERE.parents[1] / "core/tokenizer/newer_characters.h").write_text(
        "// Written by tests/tokenizer/make_newer_characters.py. Characters that the reference implementation has under a\n"
        "// name of \\p{}, and that were assigned after Unicode 14, whose tables PCRE2 10.42 has: ranges of a class.\n"
        "#pragma once\n\n"
        "#include <string_view>\n\n"
        "namespace moed {\n\n"
        "struct NewerCharacters {\n"
        "  std::string_view name, ranges;\n"
        "};\n\n"
        "// clang-format off\n"
        "inline constexpr NewerCharacters kNewerCharacters[] = {\n" + "".join(rows) + "};\n"
        "// clang-format on\n\n"
        "}  // namespace moed\n"
    )


def byte_characters() -> list[str]:
    shown = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [byte for byte in range(256) if byte not in shown]
    names = {byte: chr(byte) for byte in shown} | {byte: chr(256 + i) for i, byte in enumerate(hidden)}
    return [names[byte] for byte in range(256)]


def deepseek() -> Json:
    """Joins what is not cut: a space and the first bytes of a character, and digits."""
    byte = byte_characters()
    merges = [[byte[0x20], byte[0xF0]], [byte[0x20] + byte[0xF0], byte[0x9F]], [byte[0xF0], byte[0x9F]], ["1", "2"], ["12", "3"]]
    plain = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    steps = [*(split(pattern, "Isolated") for pattern in DEEPSEEK), plain]
    vocabulary = [*byte, *(a + b for a, b in merges)]
    return tokenizer_json({"type": "Sequence", "pretokenizers": steps}, plain, vocabulary, merges, None)


def case(description: Json, text: str) -> Json:
    return {"text": text, "ids": Tokenizer.from_str(json.dumps(description)).encode(text, add_special_tokens=False).ids}


def write_vectors() -> None:
    """What a pattern matches is taken out; "a" stands behind each character, so that its place shows."""
    edges = sorted({code for name in [*CATEGORIES, "Han"] for a, b in newer(name) for code in (a - 1, a, b, b + 1)})
    text = "".join(f"{chr(code)}a" for code in edges) + "-a7a\n"
    written = []
    for pattern in PATTERNS:
        description = tokenizer_json(split(pattern, "Removed"), {"type": "Fuse"}, ["u", "a"], [], "u")
        written.append({"name": pattern, "tokenizer": description, "cases": [case(description, text)]})
    texts = [
        "ok \U0001fa77",
        "ok \U0001f642",
        "ok \U0001fae8!",
        "\U00010d40123",
        "x \U0001face\n",
        "a\U0001e4ec b",
        "\U00031350\U0002ebf0 x",
    ]
    description = deepseek()
    written.append({"name": "DeepSeek-V3", "tokenizer": description, "cases": [case(description, one) for one in texts]})
    packed = lzma.compress(json.dumps({"tokenizers": written}, ensure_ascii=False).encode(), preset=9 | lzma.PRESET_EXTREME)
    (HERE / "data/newer_characters.vectors.json.xz").write_bytes(packed)


if __name__ == "__main__":
    assert unicodedata.unidata_version == "14.0.0", unicodedata.unidata_version
    assert tokenizers.__version__ == "0.23.3", tokenizers.__version__
    write_header()
    write_vectors()
