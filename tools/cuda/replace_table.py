#!/usr/bin/env python3
"""replace_table.py FILE COMMAND: puts the standard input behind the line of the document that names the command as its writer."""

import sys
from pathlib import Path

END = "<!-- end -->"


def replace_table(document: Path, command: str, table: str) -> None:
    begin = f"<!-- {command} -->"
    before, rest = document.read_text().split(begin)
    after = rest.split(END, maxsplit=1)[1]
    document.write_text(f"{before}{begin}\n\n{table.strip()}\n\n{END}{after}")


if __name__ == "__main__":
    replace_table(Path(sys.argv[1]), sys.argv[2], sys.stdin.read())
