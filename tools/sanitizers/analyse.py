"""What the second build does not compile, read by its compiler all the same: warnings are errors, and locks are analysed.

usage: analyse.py build/check
"""

import json
import os
import pathlib
import shlex
import subprocess
import sys
from concurrent import futures

WITH_A_FILE = ("-o", "-MF", "-MT", "-MQ")  # options that a file follows


def words_of(entry: dict[str, str]) -> list[str]:
    return [word for word in shlex.split(entry["command"]) if pathlib.Path(word).name != "ccache"]


def is_compiled(entry: dict[str, str]) -> bool:
    words = words_of(entry)
    return pathlib.Path(entry["directory"], words[words.index("-o") + 1]).exists()


def analysis(entry: dict[str, str]) -> list[str]:
    """The compiler's command line without what it would write."""
    words = words_of(entry)
    kept = [word for before, word in zip(["", *words], words, strict=False) if not {before, word}.intersection(WITH_A_FILE)]
    return [word for word in kept if word not in ("-c", "-MD", "-MMD")] + ["-fsyntax-only"]


def main() -> int:
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    entries = json.loads(pathlib.Path(sys.argv[1], "compile_commands.json").read_text())
    left = [entry for entry in entries if not is_compiled(entry)]

    def read(entry: dict[str, str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(analysis(entry), cwd=entry["directory"], capture_output=True, text=True)

    failed = 0
    with futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for entry, run in zip(left, pool.map(read, left), strict=True):
            if run.returncode:
                failed += 1
                print(f"{entry['file']}\n{run.stderr}")
    print(f"{len(left)} of {len(entries)} sources analysed without being compiled, {failed} with errors")
    return 1 if failed or not left else 0


if __name__ == "__main__":
    sys.exit(main())
