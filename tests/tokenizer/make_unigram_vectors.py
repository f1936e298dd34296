#!/usr/bin/env python3
"""Writes data/unigram.vectors.json.xz: unigram tokenizers as T5 has them, and what Hugging Face's `tokenizers` makes of texts.

  make_unigram_vectors.py       pip install tokenizers==0.23.3 sentencepiece protobuf

The pieces are trained by SentencePiece on the texts of make_vectors.py and the project's documents, with a short map of its own
in place of nmt_nfkc, which is large. Special tokens are not cut out of plain text here, other than by the reference, whose model
finds their pieces; so `plain` is made with pieces of other names in their place.
"""

import base64
import copy
import io
import json
import lzma
import pathlib
import random
import tempfile

import sentencepiece
from make_vectors import DATA, SOURCE, TEXTS, Json, decodes, encode, id_lists, random_texts, template
from sentencepiece import sentencepiece_model_pb2
from tokenizers import Tokenizer

RULES = {
    "\uff21": "A",
    "\uff22": "B",
    "\uff1c": "<",
    "\uff0f": "/",
    "\uff1e": ">",
    "e\u0301": "\u00e9",
    "A\u030a": "\u00c5",
    "\u2026": "...",
    "\u00bd": "1\u20442",
    "\ufb01": "fi",
    "\u200b": " ",
    "\u00a0": " ",
    "\u3000": " ",
    "\t": " ",
    "\n": " ",
    "\r": " ",
    "\u2028": " ",
    "\u00ad": "",
    "\u1100\u1161": "\uac00",
    "\u1100\u1161\u11a8": "\uac01",
}
EXTRA = 12
ROOT = DATA.parents[2]


def trained() -> tuple[list[tuple[str, float]], str]:
    """Pieces with their scores, and the compiled map."""
    texts = TEXTS + [path.read_text() for path in sorted((ROOT / "docs").glob("*.md"))]
    lines = [line for text in texts for line in text.splitlines() if 0 < len(line) < 400]
    with tempfile.TemporaryDirectory() as folder:
        rules = pathlib.Path(folder) / "rules.tsv"
        points = [(" ".join(f"{ord(c):X}" for c in a), " ".join(f"{ord(c):X}" for c in b)) for a, b in RULES.items()]
        rules.write_text("".join(f"{a}\t{b}\n" for a, b in points))
        model = io.BytesIO()
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(lines),
            model_writer=model,
            vocab_size=700,
            model_type="unigram",
            character_coverage=0.999,
            normalization_rule_tsv=str(rules),
            pad_id=0,
            eos_id=1,
            unk_id=2,
            bos_id=-1,
            num_threads=1,
            minloglevel=2,
        )
    proto = sentencepiece_model_pb2.ModelProto.FromString(model.getvalue())
    return [(p.piece, p.score) for p in proto.pieces], base64.b64encode(proto.normalizer_spec.precompiled_charsmap).decode()


def tokenizers(pieces: list[tuple[str, float]], charsmap: str) -> dict[str, Json]:
    extra = [f"<extra_id_{i}>" for i in reversed(range(EXTRA))]
    vocab = [[piece, score] for piece, score in pieces] + [[name, 0.0] for name in extra]
    special = [(0, "<pad>"), (1, "</s>"), (2, "<unk>"), *((len(pieces) + i, name) for i, name in enumerate(extra))]
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    metaspace: Json = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}
    precompiled: Json = {"type": "Precompiled", "precompiled_charsmap": charsmap}
    t5: Json = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": i, "content": name, **flags} for i, name in special],
        "normalizer": precompiled,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"}, metaspace]},
        "post_processor": template([], ["</s>"], {"</s>": 1}),
        "decoder": metaspace,
        "model": {"type": "Unigram", "unk_id": 2, "vocab": vocab, "byte_fallback": False},
    }
    spaces: Json = {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": "▁"}
    strip: Json = {"type": "Strip", "strip_left": False, "strip_right": True}
    kept = {**t5, "normalizer": {"type": "Sequence", "normalizers": [precompiled, strip, spaces]}, "pre_tokenizer": metaspace}
    bytes_too = copy.deepcopy(
        {**t5, "normalizer": None, "pre_tokenizer": {**metaspace, "prepend_scheme": "first", "split": False}}
    )
    bytes_too["model"]["byte_fallback"] = True
    bytes_too["model"]["vocab"] += [[f"<0x{byte:02X}>", -20.0] for byte in range(256)]
    bytes_too["decoder"] = {"type": "Sequence", "decoders": [metaspace, {"type": "ByteFallback"}, {"type": "Fuse"}]}
    return {"t5": t5, "spaces kept": kept, "byte_fallback": bytes_too}


def without_specials(description: Json) -> Tokenizer:
    """Their pieces are out of every text's reach."""
    plain = copy.deepcopy(description)
    for token in plain["added_tokens"]:
        plain["model"]["vocab"][token["id"]][0] = f"\U00100000{token['id']}\U00100000"
    plain["added_tokens"], plain["post_processor"] = [], None
    return Tokenizer.from_str(json.dumps(plain))


def main() -> None:
    written = []
    pieces, charsmap = trained()
    for name, description in tokenizers(pieces, charsmap).items():
        rnd = random.Random(name)
        tokenizer, plain = Tokenizer.from_str(json.dumps(description)), without_specials(description)
        specials = ["</s>", "<unk>", "<extra_id_0>", "<extra_id_11>", "<extra_id_12>", "\uff1c/s\uff1e", "<pad"]
        texts = TEXTS + [text + rnd.choice(specials) + text for text in TEXTS if text]
        texts += random_texts(
            60,
            ["a", "the", "b", " ", "  ", "\n", "1", ".", "é", "e\u0301", "ж", "\uff21", "\u1100", "\u1161", "🦙", *specials],
            30,
            rnd,
        )
        cases = []
        for text in texts:
            if "\uff1c/s\uff1e" in text:  # the reference finds the special token's piece in what is normalised
                ids = encode(plain, text, False, True) if not any(s in text for s in specials[:4]) else None
            else:
                ids = encode(tokenizer, text, False, True)
            if ids is None:
                continue
            others = {"plain": encode(plain, text, False, True), "processed": [*ids, 1]}
            cases.append({"text": text, "ids": ids, **{key: other for key, other in others.items() if other != ids}})
        lists = id_lists(tokenizer, [0, 1, 2, 3, 4, 5], 40, rnd)
        written.append({"name": name, "tokenizer": description, "cases": cases, "decodes": decodes(tokenizer, lists)})
    text = json.dumps({"source": SOURCE, "tokenizers": written}, ensure_ascii=True, separators=(",", ":")) + "\n"
    (DATA / "unigram.vectors.json.xz").write_bytes(lzma.compress(text.encode(), preset=9 | lzma.PRESET_EXTREME))


if __name__ == "__main__":
    main()
