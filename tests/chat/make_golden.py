"""Renders the templates of data/golden.json.xz anew with Python's jinja2 (pip install jinja2==3.1.6 markupsafe==3.0.3).

A case that is added there needs nothing but its "template". From the root of the repository: python -m tests.chat.make_golden
"""

import json
import lzma
from pathlib import Path

from tests.chat.reference import render

GOLDEN = Path(__file__).parent / "data" / "golden.json.xz"


def main() -> None:
    golden = json.loads(lzma.decompress(GOLDEN.read_bytes()))
    cases = [{"template": case["template"], **render(case["template"], golden["variables"])} for case in golden["cases"]]
    text = json.dumps({"variables": golden["variables"], "cases": cases}, indent=0) + "\n"
    GOLDEN.write_bytes(lzma.compress(text.encode(), preset=9 | lzma.PRESET_EXTREME))


if __name__ == "__main__":
    main()
