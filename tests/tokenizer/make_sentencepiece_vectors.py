#!/usr/bin/env python3
"""Writes ../pack/data/sentencepiece.vectors.json.xz: a spiece.model of the kind that T5 has, and what SentencePiece makes of
texts.

  make_sentencepiece_vectors.py       pip install sentencepiece

The pieces are trained on the texts here.
"""

import base64
import io
import json
import lzma
import pathlib
import tempfile

import sentencepiece

OUT = pathlib.Path(__file__).parents[1] / "pack" / "data" / "sentencepiece.vectors.json.xz"
TEXTS = [
    "A token's experts are in the order of their weights, which is not always that of the choice.",
    "Requests share no beginnings: what a position holds depends on the tokens behind it, too.",
    "Experts have two matrices; all layers with experts count, the encoder's and the decoder's.",
    "Die Größe einer Schicht, naïve façades, ﬁnal ½ Ａｂｃ…",
]
RULES = {"\uff21": "A", "\u2026": "...", "\ufb01": "fi", "e\u0301": "\u00e9", "\t": " ", "\n": " "}
MORE = [
    "",
    "   two  spaces \t and\na line ",
    "unknown 漢字 here",
    "order of experts, order of weights",
    "e\u0301te\u0301",
    "x" * 40,
]


def main() -> None:
    model = io.BytesIO()
    rules = pathlib.Path(tempfile.mkdtemp()) / "rules.tsv"
    points = [(" ".join(f"{ord(c):X}" for c in a), " ".join(f"{ord(c):X}" for c in b)) for a, b in RULES.items()]
    rules.write_text("".join(f"{a}\t{b}\n" for a, b in points))
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXTS * 4),
        model_writer=model,
        vocab_size=76,
        model_type="unigram",
        normalization_rule_tsv=str(rules),
        pad_id=0,
        eos_id=1,
        unk_id=2,
        bos_id=-1,
        num_threads=1,
        minloglevel=2,
    )
    processor = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    cases = [{"text": text, "ids": processor.encode(text)} for text in TEXTS + MORE]
    vectors = {"model": base64.b64encode(model.getvalue()).decode(), "pieces": processor.vocab_size(), "cases": cases}
    OUT.write_bytes(lzma.compress(json.dumps(vectors).encode(), preset=9 | lzma.PRESET_EXTREME))


if __name__ == "__main__":
    main()
