#!/usr/bin/env python3
"""Holds the documents against these rules: sentences of at most 30 words, links that lead somewhere, paths that exist.
Paths in comments of C++ have to exist, too.

Every folder with many files has a README; tests/README.md speaks for all of tests/.

Tables, indented commands and headings are no sentences; words in parentheses do not count.
"""

import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

MOST_WORDS = 30
MOST_FILES = 8  # of a folder without a README
MOST_LINES = 10  # of such a README
ROOT = Path(__file__).resolve().parent.parent
# What a path in backticks begins with, when it names a file of the repository.
FOLDERS = ("core/", "server/", "client/", "tools/", "bench/", "tests/", "proto/", "deploy/", "docs/", "models/", "cmake/", ".ci/")


def paragraphs(text: str) -> Iterator[tuple[int, str]]:
    """(line, text) of every paragraph and list item."""
    lines: list[str] = []
    begin = 0
    fenced = False
    for number, line in enumerate([*text.split("\n"), ""], start=1):
        fenced ^= line.startswith("```")
        item = re.match(r"\s*([-*]|\d+\.) ", line)
        prose = line.strip() and not fenced and not line.startswith(("    ", "|", "#", "```", "!["))
        if lines and (item or not prose):
            yield begin, " ".join(lines)
            lines = []
        if prose:
            begin = begin if lines else number
            lines.append(line[item.end() :] if item else line.strip())


def sentences(paragraph: str) -> list[str]:
    plain = re.sub(r"\]\([^)]*\)", "]", paragraph)
    while (shorter := re.sub(r"\([^()]*\)", "", plain)) != plain:
        plain = shorter
    return re.split(r"(?<=[.!?;:])\*{0,2}\s+(?=[A-Z0-9`*\[\"“])", plain)


def anchors(text: str) -> set[str]:
    titles = re.findall(r"^#+ (.*)$", text, flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def complaints(path: Path, known: set[str]) -> Iterator[str]:
    text = path.read_text()
    name = path.relative_to(ROOT)
    for line, paragraph in paragraphs(text):
        for sentence in sentences(paragraph):
            words = [word for word in sentence.split() if re.search(r"\w", word)]
            if len(words) > MOST_WORDS:
                begin = " ".join(words[:8])
                yield f"{name}:{line}: a sentence of {len(words)} words, at most {MOST_WORDS} are allowed: {begin} ..."
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if "://" in target:
            continue
        file, _, anchor = target.partition("#")
        there = (path.parent / file).resolve() if file else path
        if not there.exists():
            yield f"{name}: the link {target} leads nowhere"
        elif anchor and anchor not in anchors(there.read_text()):
            yield f"{name}: {file or name} has no heading #{anchor}"
    for quoted in re.findall(r"`([\w./-]+)`", text):
        if quoted.startswith(FOLDERS) and not any(
            k == quoted or k.startswith((quoted.rstrip("/") + "/", quoted + ".")) for k in known
        ):
            yield f"{name}: `{quoted}` is not in the repository"


def missing_in_comments(path: Path, known: set[str]) -> Iterator[str]:
    for number, line in enumerate(path.read_text().splitlines(), start=1):
        _, mark, comment = line.partition("// ")
        for named in re.findall(r"[\w./-]+\.(?:h|cc|md|proto)\b", comment if mark else ""):
            if named.startswith(FOLDERS) and named not in known:
                yield f"{path.relative_to(ROOT)}:{number}: {named} is not in the repository"


def unexplained(known: set[str]) -> Iterator[str]:
    folders = Counter(str(Path(file).parent) for file in known if not file.endswith("README.md"))
    for folder, files in sorted(folders.items()):
        readme = ROOT / ("tests" if folder.startswith("tests/") else folder) / "README.md"
        if files > MOST_FILES and not readme.exists():
            yield f"{folder}: {files} files and no README.md that says what they are and who may call them"
        elif (
            files > MOST_FILES
            and folder.startswith(("core", "server", "bench/", "tools"))
            and len(readme.read_text().splitlines()) > MOST_LINES
        ):
            yield f"{folder}/README.md: at most {MOST_LINES} lines"


def main() -> int:
    files = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    found = [text for file in files if file.endswith(".md") for text in complaints(ROOT / file, set(files))]
    found += [text for file in files if file.endswith((".h", ".cc")) for text in missing_in_comments(ROOT / file, set(files))]
    found += unexplained(set(files))
    print("\n".join(found), end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
