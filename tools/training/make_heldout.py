#!/usr/bin/env python3
"""Cut a text for perplexity out of the part of the corpus that the tales models were not trained on.

Takes the beginning of one public-domain book that lies whole inside the held-out tokens, ending with a paragraph.
"""

import argparse
import pathlib

from tokenizers import Tokenizer

import tales_corpus


def held_out_texts(data: pathlib.Path, tokenizer: Tokenizer) -> list[str]:
    """Texts of which every token is held out."""
    texts = tales_corpus.read_texts(data)
    whole: list[str] = []
    tokens = 0
    for index in tales_corpus.shuffled_order(len(texts)):
        tokens += len(tales_corpus.token_ids(tokenizer, texts[index]))
        if tokens > tales_corpus.HELD_OUT_TOKENS:
            return whole
        whole.append(texts[index])
    return whole


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=pathlib.Path, help="the text file to write")
    parser.add_argument("--data", type=pathlib.Path, required=True, help="folder with text/ and eval/, as for training")
    parser.add_argument("--tokenizer", type=pathlib.Path, required=True, help="tokenizer.json of the model")
    parser.add_argument("--title", default="The Sign of the Four", help="first line of the book")
    parser.add_argument("--characters", type=int, default=80_000, help="length, up to the end of a paragraph")
    arguments = parser.parse_args()

    texts = held_out_texts(arguments.data, Tokenizer.from_file(str(arguments.tokenizer)))
    books = [text for text in texts if text.startswith(arguments.title + "\n")]
    if len(books) != 1:
        titles = sorted(text.split("\n", 1)[0] for text in texts if len(text) > arguments.characters)
        raise SystemExit(f"no held-out book is called {arguments.title!r}; there are: {titles}")
    text = books[0]
    end = text.find("\n\n", arguments.characters)
    arguments.out.write_text((text if end < 0 else text[:end]) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
