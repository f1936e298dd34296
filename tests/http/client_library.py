"""Tests that speak to moed-http by a client library of PyPI: the module is run again by a Python that has it."""

import argparse
import importlib.util
import os
import pathlib
import sys
import unittest
from collections.abc import Sequence

from tests.real_programs import RealProgramsTest
from tests.virtual_environment import SKIPPED, exit_code, python_with
from tools.daemon import DEFAULT_BINARIES


def main(module: str, library: str, requirements: Sequence[str]) -> None:
    """unittest.main() of the module that is run, and --bin. Ends with SKIPPED where PyPI cannot be reached."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--bin", type=pathlib.Path, default=DEFAULT_BINARIES)
    options, rest = parser.parse_known_args()
    if importlib.util.find_spec(library) is None:
        folder = options.bin.parent / f"http_{library}"
        folder.mkdir(parents=True, exist_ok=True)
        try:
            python = python_with(folder, requirements)
        except unittest.SkipTest as reason:
            print(f"skipped: {reason}")
            sys.exit(SKIPPED)
        os.execv(python, [python, "-B", "-m", module, *sys.argv[1:]])
    RealProgramsTest.binaries = options.bin
    sys.exit(exit_code(unittest.main(module="__main__", argv=[sys.argv[0], *rest], exit=False).result))
