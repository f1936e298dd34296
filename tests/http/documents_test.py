"""docs/http.md names the parameters that moed-http knows, each where it belongs."""

import re

from tests.real_programs import RealProgramsTest, main
from tools.daemon import ROOT

BOTH = ("/v1/completions", "/v1/chat/completions")
TABLES = {
    "`/v1/completions` and `/v1/chat/completions`": BOTH,
    "`/v1/completions` besides": BOTH[:1],
    "`/v1/chat/completions` besides": BOTH[1:],
    "`/v1/responses`": ("/v1/responses",),
    "`/v1/messages`": ("/v1/messages",),
    "The Open Inference Protocol": ("/v2/models",),
}


def documented() -> set[tuple[str, str]]:
    text = (ROOT / "docs" / "http.md").read_text()
    found: set[tuple[str, str]] = set()
    for heading, paths in TABLES.items():
        table = text.split(f"\n{heading}:\n\n", 1)[1].split("\n\n", 1)[0]
        for row in table.splitlines()[2:]:
            names = re.findall(r"`([a-z_]+)`", row.split("|")[1])
            found.update((path, name) for path in paths for name in names)
    return found


class DocumentsTest(RealProgramsTest):
    def test_parameters(self) -> None:
        listed = self.run_program("moed-http", "--list-parameters")
        self.assertEqual(listed.returncode, 0, listed.stderr)
        known = {(path, name) for path, name in (line.split() for line in listed.stdout.splitlines())}
        self.assertGreater(len(known), 50)
        self.assertEqual(known, documented())


if __name__ == "__main__":
    main()
