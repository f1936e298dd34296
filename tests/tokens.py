"""Files of --tokens, as tests write them."""

import hashlib
import pathlib


def line(name: str, scopes: str, token: str, *limits: str) -> str:
    return " ".join((name, scopes, hashlib.sha256(token.encode()).hexdigest(), *limits)) + "\n"


def write_tokens(path: pathlib.Path, *tokens: tuple[str, ...]) -> pathlib.Path:
    """Of (name, scopes, token, limits...)."""
    path.write_text("# of tests\n\n" + "".join(line(*each) for each in tokens))
    return path
