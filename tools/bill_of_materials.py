#!/usr/bin/env python3
"""What programs are made of: a CycloneDX 1.4 document of the Debian packages whose libraries they load, and of those whose
headers were compiled into them. Nothing is fetched. usage: bill_of_materials.py [--build FOLDER] PROGRAM... >bill.json

With --build, a build folder of ninja, the headers are those that the compiler read for all that was built there.
"""

import argparse
import json
import pathlib
import re
import subprocess
import sys
from collections.abc import Iterable


class NoBill(Exception):
    """Why there is none."""


def output_of(*command: object) -> str:
    run = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    if run.returncode:
        raise NoBill(f"{command[0]} {command[1]} ended with {run.returncode}: {(run.stderr or run.stdout).strip()}")
    return run.stdout


def libraries(program: pathlib.Path) -> set[str]:
    listed = output_of("ldd", program)
    if missing := re.findall(r"(\S+) => not found", listed):
        raise NoBill(f"{program} lacks {', '.join(missing)}")
    return set(re.findall(r"(/\S+) \(0x", listed))


def headers(build: pathlib.Path) -> set[str]:
    read = set(re.findall(r"^ +(\S*/usr/include/\S+)$", output_of("ninja", "-C", build, "-t", "deps"), re.M))
    return {str((build / path).resolve()) for path in read}  # some are relative to the folder


def packages(files: Iterable[str]) -> set[str]:
    """Of Debian, as name:architecture. A library may be known by its path before /lib and /usr/lib were made one."""
    known = set(files) | {str(pathlib.Path(file).resolve()) for file in files}
    known |= {file.removeprefix("/usr") for file in known}
    run = subprocess.run(
        ["dpkg", "-S", *sorted(known)], capture_output=True, text=True
    )  # fails for the paths of which it knows none
    return {name for line in run.stdout.splitlines() if ": /" in line for name in line.split(": /")[0].split(", ")}


def component(name: str, use: str) -> dict[str, object]:
    fields = output_of("dpkg-query", "-W", "-f", "${Package}\\t${Version}\\t${Architecture}\\t${source:Package}", name)
    package, version, architecture, source = fields.split("\t")
    return {
        "type": "library",
        "bom-ref": f"{package}:{architecture}",
        "name": package,
        "version": version,
        "purl": f"pkg:deb/debian/{package}@{version.replace('+', '%2B')}?arch={architecture}&upstream={source}",
        "properties": [{"name": "moed:use", "value": use}],
    }


def bill(programs: list[pathlib.Path], build: pathlib.Path | None) -> dict[str, object]:
    loaded = packages(set().union(*map(libraries, programs)))
    compiled = packages(headers(build)) - loaded if build else set()
    components = [component(name, "loaded") for name in sorted(loaded)]
    components += [component(name, "compiled in") for name in sorted(compiled)]
    version = output_of(programs[0], "--version").split()[1] if programs[0].name == "moed" else ""
    about = {"type": "application", "name": programs[0].name, "version": version}
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.4",
        "version": 1,
        "metadata": {"component": about},
        "components": components,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", type=pathlib.Path)
    parser.add_argument("programs", metavar="PROGRAM", nargs="+", type=pathlib.Path)
    options = parser.parse_args()
    try:
        json.dump(bill(options.programs, options.build), sys.stdout, indent=1)
    except NoBill as error:
        print(f"bill_of_materials.py: {error}", file=sys.stderr)
        return 1
    print()
    return 0


if __name__ == "__main__":
    sys.exit(main())
