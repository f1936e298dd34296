"""Does what CONTRIBUTING.md says: applies the examples of each section to the sources, compiles what they touch, runs the result.

A block of code names its file. A block for a file that is not there is that file. Otherwise "after: LINE" inserts it behind
that line, and "replace: TEXT" puts it in the place of that text. The build folder's own commands compile and link, in front of
its libraries.
"""

import argparse
import functools
import json
import re
import shutil
import subprocess
import tempfile
import unittest
from dataclasses import dataclass
from pathlib import Path

# A header has types, templates, macros or functions with bodies; others tell those who included it before nothing new.
DEFINES = re.compile(r"^(struct|class|enum|template|inline|constexpr|using|#define)\b", re.MULTILINE)
ROOT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(
    r"^```cpp (?P<file>\S+)(?: (?P<how>after|replace): (?P<anchor>[^\n]*))?\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL
)

arguments: argparse.Namespace


@dataclass
class Example:
    file: str
    how: str | None
    anchor: str | None
    code: str


def examples_of(title: str) -> list[Example]:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    section = text.split(f"\n## {title}\n")[1].split("\n## ")[0]
    return [Example(m["file"], m["how"], m["anchor"], m["code"]) for m in BLOCK.finditer(section)]


def applied(example: Example, text: str) -> str:
    assert example.anchor is not None
    if text.count(example.anchor) != 1:
        raise AssertionError(f"{example.file} has {text.count(example.anchor)} times: {example.anchor}")
    if example.how == "replace":
        return text.replace(example.anchor, example.code.rstrip("\n"))
    head, tail = text.split(example.anchor)
    rest_of_line, _, tail = tail.partition("\n")
    return f"{head}{example.anchor}{rest_of_line}\n{example.code}{tail}"


class Tree:
    """The files that examples change or add, and programs built with them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.files: set[str] = set()

    def apply(self, title: str) -> None:
        for example in examples_of(title):
            here = self.folder / example.file
            there = ROOT / example.file
            here.parent.mkdir(parents=True, exist_ok=True)
            if example.how is None:
                assert not there.exists(), f"{example.file} is there already"
                here.write_text(example.code)
            else:
                here.write_text(applied(example, (here if here.exists() else there).read_text()))
            self.files.add(example.file)

    def build(self, target: str) -> Path:
        """The path of `target` with the examples in it."""
        units, link = units_of(target)
        touched = [unit for unit in units if self.touches(unit)]
        known = {file for unit in units for file in unit.sources}
        objects = [self.compile(unit.command, unit.sources) for unit in touched]
        for file in sorted(file for file in self.files - known if file.endswith(".cc")):
            nearest = min(
                (unit for unit in units if Path(unit.sources[0]).parent == Path(file).parent), key=lambda unit: unit.sources
            )
            objects.append(self.compile(nearest.command, [file]))
        for unit in touched:
            link = link.replace(f" {object_of(unit.command)} ", " ")
        program = self.folder / Path(target).name
        link = re.sub(r" -o \S+", f" -o {program} {' '.join(map(str, objects))}", link, count=1)
        run(link)
        return program

    def touches(self, unit: "Unit") -> bool:
        """It has a source that was changed, or includes a changed header that has definitions."""
        made_of = dependencies().get(object_of(unit.command), set())
        return not self.files.isdisjoint(unit.sources) or bool(self.defining_headers() & made_of)

    def defining_headers(self) -> set[str]:
        there = {file for file in self.files if file.endswith(".h") and (ROOT / file).exists()}
        return {file for file in there if DEFINES.search((ROOT / file).read_text())}

    def compile(self, command: str, sources: list[str]) -> Path:
        """The object of sources that are compiled together, as the examples have them."""
        target = self.folder / (sources[0].replace("/", "_") + ".o")
        batch = target.with_suffix(".cc")
        paths = [self.folder / file if (self.folder / file).exists() else ROOT / file for file in sources]
        batch.write_text("".join(f'#include "{path}"\n' for path in paths))
        command = re.sub(r" -o \S+", f" -o {target}", command)
        command = re.sub(r" -(MD|M[FT] \S+)", "", command)
        command = re.sub(r"( -include )(\S+)", lambda found: found[1] + str(self.precompiled(Path(found[2]))), command)
        command = re.sub(r" -c \S+", f" -c {batch}", command)
        run(command.replace(" -I", f" -I{self.folder} -I", 1) + " -O0")
        return target

    def precompiled(self, header: Path) -> Path:
        """The same headers for code that is not optimised; the build's own are for code that is."""
        copy = self.folder / header.parent.name / header.name
        if not copy.exists():
            copy.parent.mkdir()
            shutil.copy(header, copy)
            command = ninja("commands", f"{header.relative_to(arguments.build)}.gch")[-1]
            run(re.sub(r" -o \S+", f" -o {copy}.gch", re.sub(r" -(MD|M[FT] \S+)", "", command)) + " -O0")
        return copy


@dataclass
class Unit:
    """What one command compiles: a source, or several as a batch."""

    command: str
    sources: list[str]


def run(command: str) -> None:
    done = subprocess.run(command, shell=True, cwd=arguments.build, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}\n{done.stderr}"


def ninja(*words: str) -> list[str]:
    return subprocess.run(
        ["ninja", "-t", *words], cwd=arguments.build, capture_output=True, text=True, check=True
    ).stdout.splitlines()


def units_of(target: str) -> tuple[list[Unit], str]:
    """What compiles the project's sources of `target`, and the command that links it."""
    units = []
    lines = ninja("commands", target)
    for line in lines:
        source = re.search(r" -c (\S+)", line)
        if source and Path(source[1]).is_relative_to(ROOT):
            units.append(Unit(line, sources_of(Path(source[1]))))
    return units, lines[-1]


def sources_of(compiled: Path) -> list[str]:
    paths = (
        re.findall(r'^#include "([^"]+)"', compiled.read_text(), re.MULTILINE) if compiled.parent.name == "Unity" else [compiled]
    )
    return [str(Path(path).relative_to(ROOT)) for path in paths]


def object_of(command: str) -> str:
    target = re.search(r" -o (\S+)", command)
    assert target is not None
    return target[1]


@functools.cache
def dependencies() -> dict[str, set[str]]:
    """The project's files that each object of the build was made of."""
    found: dict[str, set[str]] = {}
    for line in ninja("deps"):
        if not line.startswith(" "):
            found[line.partition(":")[0]] = made_of = set()
        elif line.lstrip().startswith(f"{ROOT}/"):
            made_of.add(str(Path(line.strip()).relative_to(ROOT)))
    return found


class Examples(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.tree = Tree(Path(folder.name))

    def output(self, *command: object) -> str:
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def replay(self, *options: str) -> str:
        trace = ROOT / "tests/replay/data"
        common = ("--trace-dir", trace, "--limit-tokens", "40", "--budget", "0.25", "--json")
        return self.output(self.tree.build("bin/moe-bench"), "replay", *common, *options)

    def test_parts_and_presets(self) -> None:
        for title in ("Add a policy", "Add a predictor", "Add a preset", "Add a flag"):
            self.tree.apply(title)
        moed = self.tree.build("bin/moed")
        listed = self.output(moed, "--list")
        for name in ("newest", "same-numbers", "frequent"):
            self.assertIn(name, listed)
        self.assertIn("--largest-prompt", self.output(moed, "--help"))

    def test_a_policy_is_measured(self) -> None:
        self.tree.apply("Add a policy")
        rows = json.loads(self.replay("--policy", "newest"))
        self.assertIn("newest", json.dumps(rows))

    def test_a_family_is_packed(self) -> None:
        self.tree.apply("Add a model family")
        checkpoint = self.tree.folder / "lark"
        shutil.copytree(ROOT / "tests/model/data/olmoe", checkpoint)
        subprocess.run(["xz", "--decompress", checkpoint / "model.safetensors.xz"], check=True)
        config = json.loads((checkpoint / "config.json").read_text())
        config["model_type"] = "lark"
        (checkpoint / "config.json").write_text(json.dumps(config))
        self.output(self.tree.build("bin/moed-pack"), checkpoint, self.tree.folder / "lark.moed", "--dry-run")

    def test_a_metric_is_compiled(self) -> None:
        self.tree.apply("Add a metric")
        units, _ = units_of("bin/moed")
        (unit,) = (unit for unit in units if self.tree.touches(unit))
        self.assertIn("server/process/process_metrics.cc", unit.sources)
        compiled = self.tree.compile(unit.command, unit.sources)
        self.assertIn(b"process_file_descriptors_left", compiled.read_bytes())


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", type=Path, default=ROOT / "build/release")
    arguments, rest = parser.parse_known_args()
    unittest.main(argv=["examples_test", *rest], verbosity=0)
