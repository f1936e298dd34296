"""Holds every include of the repository against the tables of docs/architecture.md.

A room is a row of the modules' table: a folder, or a pattern of folders. A file may include files of its own room and of the
rooms in its row's column "may include"; through headers of those it may also reach the rooms in the column "and reach through
them". Rooms may not include each other in a circle. Arrows in the table of exceptions are left out of all this; one that nothing
needs any more is an error. A name in a cell is a folder from the root, in core/ or in core/expert/; it may end in /* (this folder
and all beneath) or name one header.
"""

import argparse
import collections
import dataclasses
import itertools
import pathlib
import re
import sys
from collections.abc import Iterator

DOCUMENT = "docs/architecture.md"
INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"')
GENERATED = re.compile(r"(\.grpc)?\.pb\.h$")
SOURCES = ("core", "server", "client", "tools", "bench", "tests", "proto")


@dataclasses.dataclass(frozen=True)
class Room:
    pattern: str  # of folders
    direct: tuple[str, ...]  # patterns of folders or files that its files may name
    through: tuple[str, ...]  # what they may reach besides, through headers of those


@dataclasses.dataclass(frozen=True)
class Exemption:
    sources: tuple[str, ...]
    targets: tuple[str, ...]
    text: str


def tables(text: str) -> Iterator[list[list[str]]]:
    """The rows of each table as lists of cells, the header first."""
    table: list[list[str]] = []
    for line in text.splitlines() + [""]:
        if line.startswith("|"):
            cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
            if not all(set(cell) <= set("-: ") for cell in cells):
                table.append(cells)
        elif table:
            yield table
            table = []


def names(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def covers(pattern: str, path: str) -> bool:
    """Whether a pattern of a cell means this file: it names it, its folder, or with /* a folder above it."""
    folder = str(pathlib.PurePosixPath(path).parent)
    return pattern in (path, folder) or (pattern.endswith("/*") and (folder + "/").startswith(pattern[:-1]))


class House:
    """What the tables of the document say, and what the sources below root do."""

    def __init__(self, root: pathlib.Path):
        self.root = root
        self.errors: list[str] = []
        self.includes: dict[str, dict[str, int]] = {}  # file -> included file -> line
        self.rooms: list[Room] = []
        self.exemptions: list[Exemption] = []
        self.used: set[Exemption] = set()
        self.read_sources()
        self.read_document()

    def read_sources(self) -> None:
        paths = [path for top in SOURCES for ending in ("*.h", "*.cc") for path in (self.root / top).rglob(ending)]
        known = {path.relative_to(self.root).as_posix() for path in paths}
        protos = {path.relative_to(self.root / "proto").as_posix() for path in (self.root / "proto").rglob("*.proto")}
        for file in sorted(known):
            found = self.includes.setdefault(file, {})
            for number, line in enumerate((self.root / file).read_text().splitlines(), 1):
                match = INCLUDE.match(line)
                if not match:
                    continue
                included = match.group(1)
                proto = GENERATED.sub(".proto", included)
                if included in known:
                    found.setdefault(included, number)
                elif proto in protos:
                    found.setdefault("proto/" + proto, number)

    def read_document(self) -> None:
        folders = {str(pathlib.PurePosixPath(file).parent) for file in self.all_files()}
        text = (self.root / DOCUMENT).read_text()
        for header, *rows in tables(text):
            if header[0] == "module":
                columns = header.index("may include"), header.index("and reach through them")
                for row in rows:
                    for pattern in names(row[0]):
                        direct, through = (self.resolve(pattern, row[column], folders) for column in columns)
                        self.rooms.append(Room(pattern, direct, through))
            elif header[0] == "arrow that stands for now":
                for row in rows:
                    sources, targets = (self.resolve(row[0], side, folders) for side in row[0].split("→"))
                    self.exemptions.append(Exemption(sources, targets, row[0]))
        if not self.rooms:
            self.errors.append(f"{DOCUMENT} has no table of modules")

    def all_files(self) -> set[str]:
        return set(self.includes) | {target for targets in self.includes.values() for target in targets}

    def resolve(self, pattern: str, cell: str, folders: set[str]) -> tuple[str, ...]:
        """The patterns that a row's cell names."""
        found = []
        for name in names(cell):
            for base in (".", "core", "core/expert"):
                full = (pathlib.PurePosixPath(base) / name).as_posix()
                plain = full.removesuffix("/*")
                if plain in self.includes or any((folder + "/").startswith(plain + "/") for folder in folders):
                    found.append(full)
                    break
            else:
                self.errors.append(f"{DOCUMENT}: the row of {pattern} names {name}, which is neither a folder nor a header")
        return tuple(found)

    def room(self, file: str) -> Room | None:
        """The row of the file's folder: its own before a pattern's, a longer pattern's before a shorter one's."""
        folder = str(pathlib.PurePosixPath(file).parent)
        fitting = [room for room in self.rooms if room.pattern == folder or covers(room.pattern, file)]
        return max(fitting, key=lambda room: (room.pattern == folder, len(room.pattern)), default=None)

    def excepted(self, source: str, target: str) -> bool:
        for exemption in self.exemptions:
            if any(covers(pattern, source) for pattern in exemption.sources) and any(
                covers(pattern, target) for pattern in exemption.targets
            ):
                self.used.add(exemption)
                return True
        return False

    def check_rows(self) -> None:
        folders = collections.defaultdict(list)
        for file in self.all_files():
            folders[str(pathlib.PurePosixPath(file).parent)].append(file)
        for folder, files in sorted(folders.items()):
            if self.room(files[0]) is None:
                self.errors.append(f"{folder} has no row in {DOCUMENT}")
        for room in self.rooms:
            if not any(self.room(file) == room for file in self.all_files()):
                self.errors.append(f"{DOCUMENT}: the row of {room.pattern} is of no folder")

    def check_direct(self) -> None:
        for file, targets in self.includes.items():
            room = self.room(file)
            for target, line in targets.items():
                if room is None or self.room(target) in (room, None) or any(covers(may, target) for may in room.direct):
                    continue
                if not self.excepted(file, target):
                    allowed = ", ".join(room.direct) or "nothing"
                    self.errors.append(f"{file}:{line}: {room.pattern} may not include {target} (allowed: {allowed})")

    def check_reach(self) -> None:
        """Every room that a room reaches through others' headers, each with the shortest chain of includes that does it."""
        shortest: dict[tuple[str, str], list[str]] = {}
        for file in self.includes:
            room = self.room(file)
            if room is None:
                continue
            for target, chain in self.reached(file).items():
                other = self.room(target)
                if other is None or other == room or any(covers(may, target) for may in room.direct + room.through):
                    continue
                if self.excepted(file, target):
                    continue
                best = shortest.get((room.pattern, other.pattern))
                if best is None or len(chain) < len(best):
                    shortest[room.pattern, other.pattern] = chain
        for (source, target), chain in sorted(shortest.items()):
            self.errors.append(f"{source} reaches {target}, which its row does not name: " + " -> ".join(chain))

    def reached(self, file: str) -> dict[str, list[str]]:
        """What the file's includes reach in two steps or more -> the shortest chain from it, not through excepted arrows."""
        chains = {file: [file]}
        queue = collections.deque([file])
        while queue:
            at = queue.popleft()
            for target in self.includes.get(at, {}):
                if target not in chains and not (self.room(at) != self.room(target) and self.excepted(at, target)):
                    chains[target] = chains[at] + [target]
                    queue.append(target)
        return {target: chain for target, chain in chains.items() if len(chain) > 2}

    def check_circles(self) -> None:
        arrows: dict[str, dict[str, str]] = collections.defaultdict(dict)  # room -> room that it includes -> the file that does
        for file, targets in self.includes.items():
            for target in targets:
                source, other = self.room(file), self.room(target)
                if source and other and source != other and not self.excepted(file, target):
                    arrows[source.pattern].setdefault(other.pattern, f"{file} includes {target}")
        reported: set[frozenset[str]] = set()
        for start in sorted(arrows):
            circle = self.circle(arrows, start)
            if circle and frozenset(circle) not in reported:
                reported.add(frozenset(circle))
                steps = [arrows[here][there] for here, there in itertools.pairwise(circle)]
                self.errors.append(f"a circle of rooms: {' -> '.join(circle)} ({'; '.join(steps)})")

    @staticmethod
    def circle(arrows: dict[str, dict[str, str]], start: str) -> list[str]:
        """The shortest way from a room back to itself; empty where there is none."""
        ways = {room: [start, room] for room in arrows[start]}
        queue = collections.deque(ways)
        while queue:
            at = queue.popleft()
            if at == start:
                return ways[at]
            for room in arrows.get(at, {}):
                if room not in ways:
                    ways[room] = ways[at] + [room]
                    queue.append(room)
        return []

    def check(self) -> list[str]:
        self.check_rows()
        self.check_direct()
        self.check_reach()
        self.check_circles()
        for exemption in self.exemptions:
            if exemption not in self.used:
                self.errors.append(f"{DOCUMENT}: nothing needs this exception any more, delete its row: {exemption.text}")
        return self.errors


def main() -> int:
    assert __doc__
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--root", type=pathlib.Path, default=pathlib.Path(__file__).parent.parent, help="the repository")
    errors = House(parser.parse_args().root).check()
    for error in errors:
        print(error)
    if not errors:
        print(f"includes follow {DOCUMENT}")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
