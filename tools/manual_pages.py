#!/usr/bin/env python3
"""Writes the manual pages of moed's programs from what they say with --help. usage: manual_pages.py OUT PROGRAM..."""

import argparse
import gzip
import pathlib
import re
import shlex
import subprocess
from collections.abc import Iterator

# The commands that a program's help lists under SUBCOMMANDS have pages of their own: moectl-generate(1). Those of moed are
# sections of moed(1), for moed-plan(1) is another program's.
SUBCOMMANDS = re.compile(r"^Subcommands:$")
COMMANDS = re.compile(r"^Commands \(.*\):$")
HEADING = re.compile(r"^\[?([A-Z][A-Za-z ]*(: \w+)?)\]?( \(.*\))?:?\s*$")
OPTION = re.compile(r"^( +)(-\S.*?|\S+)(?: {2,}(\S.*))?$")
COLUMN = 24  # from which on a line goes on with what the one before says


def quoted(text: str) -> str:
    """What roff shows as this text."""
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return "\\&" + text if text[:1] in (".", "'") else text


def body(lines: list[str]) -> Iterator[str]:
    """Headings become sections, options tagged paragraphs; what is set out in lines stays so."""
    for line in lines:
        option = OPTION.match(line)
        if not line.strip():
            yield ".PP"
        elif not line.startswith(" ") and HEADING.match(line) and line.rstrip().endswith((":", "]")):
            yield f'.SH "{quoted(line.strip(" :[]")).upper()}"'
        elif len(line) - len(line.lstrip()) >= COLUMN:
            yield quoted(line.strip())
        elif option and (option[2].startswith("-") or option[3]):
            yield ".TP"
            yield f"\\fB{quoted(option[2])}\\fR"
            if option[3]:
                yield quoted(option[3])
        elif line.startswith(" "):
            yield from (".nf", quoted(line), ".fi")
        else:
            yield quoted(line)


def page(name: str, version: str, text: str) -> str:
    """Of the help of `name`, a program or a program and its command."""
    before, _, rest = text.partition("Usage:")
    usage, _, after = rest.partition("\n")
    summary = (before.strip() or after.strip()).splitlines()[0]  # it may stand after the usage
    summary = re.split(r"(?<=[a-z])[.,;:](?: |$)", summary)[0]
    usages, lines = [usage.strip()], after.splitlines()
    while lines and lines[0].startswith("       "):
        usages.append(lines.pop(0).strip())
    out = [f'.TH "{name.replace(" ", "-").upper()}" 1 "" "moed {version}" "moed"', ".SH NAME"]
    out += [f"{quoted(name.replace(' ', '-'))} \\- {quoted(summary.rstrip('.'))}", ".SH SYNOPSIS"]
    for line in usages:
        out += [f"\\fB{quoted(line)}\\fR", ".br"]
    out += [".SH DESCRIPTION", *body(before.strip().splitlines()), *body(lines)]
    return re.sub(r"(\.PP\n)+(?=\.SH|\.TP|\.PP|\Z)", "", "\n".join(out) + "\n")


def section(name: str, text: str) -> str:
    return f'.SH "{quoted(name).upper()}"\n' + "\n".join([".nf", *map(quoted, text.strip().splitlines()), ".fi", ""])


def commands(heading: re.Pattern[str], text: str) -> Iterator[str]:
    inside = False
    for line in text.splitlines():
        if heading.match(line):
            inside = True
        elif inside and (match := re.match(r"^ {2}(?:moed )?([a-z-]+)(?= {2}| [A-Z\[])", line)):
            yield match[1]
        elif inside and not line.startswith(" "):
            inside = False


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--emulator", type=shlex.split, default=[], help="what runs programs of another machine")
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("programs", type=pathlib.Path, nargs="+")
    options = parser.parse_args()

    def said(*command: object) -> str:
        return subprocess.run([*options.emulator, *map(str, command)], check=True, capture_output=True, text=True).stdout

    options.out.mkdir(parents=True, exist_ok=True)
    for program in options.programs:
        version = said(program, "--version").split()[1]
        text = said(program, "--help")
        pages = {program.name: page(program.name, version, text)}
        for command in commands(COMMANDS, text):
            pages[program.name] += section(f"{program.name} {command}", said(program, command, "--help"))
        for command in commands(SUBCOMMANDS, text):
            name = f"{program.name} {command}"
            pages[name] = page(name, version, said(program, command, "--help"))
        for name, roff in pages.items():
            path = options.out / f"{name.replace(' ', '-')}.1.gz"
            path.write_bytes(gzip.compress(roff.encode(), 9, mtime=0))


if __name__ == "__main__":
    main()
