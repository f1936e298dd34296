"""tools/check_includes.py on small made-up repositories: what it must find, and what it must let pass."""

import pathlib
import subprocess
import sys
import tempfile
import unittest
from collections.abc import Mapping

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "tools" / "check_includes.py"
ROWS = """
| module | holds | may include | and reach through them |
|---|---|---|---|
| `core/base` | | | |
| `core/io` | | `base` | |
| `core/store` | | `base`, `io` | |
| `core/model` | | `store` | {through} |
"""
ROWS_IN_ORDER = ROWS.format(through="`base`")
EXEMPTIONS = """
| arrow that stands for now | why |
|---|---|
"""
# The includes of each file. model reaches base through store, and no row says that it may.
FILES: dict[str, list[str]] = {
    "core/base/ids.h": [],
    "core/io/file.h": ["core/base/ids.h", "absl/status/status.h"],
    "core/store/store.h": ["core/base/ids.h"],
    "core/model/model.cc": ["core/store/store.h"],
}


class CheckIncludes(unittest.TestCase):
    def check(self, more: Mapping[str, list[str]] | None = None, rows: str = ROWS_IN_ORDER) -> tuple[list[str], bool]:
        """The checker's lines on FILES with more files (or more includes of theirs), and whether it was content."""
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            (root / "docs").mkdir()
            (root / "docs/architecture.md").write_text("# Made up\n" + rows)
            files = FILES | {name: FILES.get(name, []) + includes for name, includes in (more or {}).items()}
            for name, includes in files.items():
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                (root / name).write_text("".join(f'#include "{include}"\n' for include in includes))
            done = subprocess.run([sys.executable, SCRIPT, "--root", root], capture_output=True, text=True, check=False)
            self.assertEqual(done.stderr, "")
            return done.stdout.splitlines(), done.returncode == 0

    def finds(self, *lines: str, more: Mapping[str, list[str]] | None = None, rows: str = ROWS_IN_ORDER) -> None:
        found, content = self.check(more, rows)
        self.assertFalse(content)
        for line in lines:
            self.assertTrue(any(line in text for text in found), f"{line!r} is not in {found}")
        self.assertEqual(len(found), len(lines), found)

    def test_a_house_in_order_passes(self) -> None:
        self.assertEqual(self.check(), (["includes follow docs/architecture.md"], True))

    def test_an_arrow_that_turns_back(self) -> None:
        self.finds(
            "core/io/file.h:3: core/io may not include core/store/store.h (allowed: core/base)",
            more={"core/io/file.h": ["core/store/store.h"]},
        )

    def test_a_folder_without_a_row(self) -> None:
        self.finds("core/cellar has no row", more={"core/cellar/cask.h": []})

    def test_a_row_without_a_folder(self) -> None:
        self.finds("the row of core/attic is of no folder", rows=ROWS_IN_ORDER + "| `core/attic` | | | |\n")

    def test_a_row_that_names_what_is_not_there(self) -> None:
        self.finds("the row of core/model names bsae", "core/model reaches core/base", rows=ROWS.format(through="`bsae`"))

    def test_a_reach_through_a_chain_is_told_with_the_chain(self) -> None:
        self.finds(
            "core/model reaches core/base, which its row does not name: "
            "core/model/model.cc -> core/store/store.h -> core/base/ids.h",
            rows=ROWS.format(through=""),
        )
        self.finds(
            "core/model reaches core/io, which its row does not name: "
            "core/model/model.cc -> core/store/store.h -> core/io/file.h",
            more={"core/store/store.h": ["core/io/file.h"]},
        )

    def test_what_is_reached_may_not_be_named(self) -> None:
        self.finds("core/model may not include core/base/ids.h", more={"core/model/model.cc": ["core/base/ids.h"]})

    def test_a_circle_that_every_row_allows(self) -> None:
        rows = ROWS_IN_ORDER.replace("| `core/io` | | `base` |", "| `core/io` | | `base`, `store` |")
        self.finds(
            "a circle of rooms: core/io -> core/store -> core/io "
            "(core/io/read.h includes core/store/store.h; core/store/reader.cc includes core/io/file.h)",
            more={"core/io/read.h": ["core/store/store.h"], "core/store/reader.cc": ["core/io/file.h"]},
            rows=rows,
        )

    def test_one_header_of_a_folder(self) -> None:
        rows = ROWS_IN_ORDER.replace("| `store` |", "| `store/store.h` |")
        self.assertTrue(self.check(rows=rows)[1])
        self.finds(
            "may not include core/store/writer.h",
            more={"core/model/model.cc": ["core/store/writer.h"], "core/store/writer.h": []},
            rows=rows,
        )

    def test_an_exemption_stands_while_it_is_needed(self) -> None:
        row = "| `core/store/store.h` → `io` | for now |\n"
        rows = ROWS_IN_ORDER.replace("`base`, `io`", "`base`") + EXEMPTIONS + row
        self.assertTrue(self.check(more={"core/store/store.h": ["core/io/file.h"]}, rows=rows)[1])
        self.finds("nothing needs this exception any more", rows=rows)

    def test_generated_headers_belong_to_their_proto(self) -> None:
        rows = ROWS_IN_ORDER + "| `proto/*` | | | |\n"
        self.finds(
            "core/io may not include proto/moe/v1/chat.proto",
            more={"core/io/file.h": ["moe/v1/chat.grpc.pb.h"], "proto/moe/v1/chat.proto": []},
            rows=rows,
        )


if __name__ == "__main__":
    unittest.main()
