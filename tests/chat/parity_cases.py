"""Every template of the command line x every conversation, and what Python makes of them: one JSON object a line."""

import json
import sys
from pathlib import Path

from tests.chat.conversations import conversations, variables
from tests.chat.reference import render


def main() -> None:
    for file in sys.argv[1:]:
        source = Path(file).read_text(encoding="utf-8")
        for name, conversation in conversations().items():
            for add_generation_prompt in (False, True):
                given = variables(conversation, add_generation_prompt)
                case = {"file": file, "name": name, "variables": given, "expected": render(source, given)}
                print(json.dumps(case))


if __name__ == "__main__":
    main()
