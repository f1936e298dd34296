"""Tests that run the real programs of one build: --bin FOLDER, or else those of the release build."""

import argparse
import contextlib
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
import urllib.request
from collections.abc import Mapping, Sequence
from typing import ClassVar

from tools.daemon import DEFAULT_BINARIES, ROOT, Daemon, running

CALL_SECONDS = 120


class RealProgramsTest(unittest.TestCase):
    """One folder for all tests of a class, gone in the end."""

    binaries: ClassVar[pathlib.Path] = DEFAULT_BINARIES
    folder: ClassVar[pathlib.Path]

    @classmethod
    def setUpClass(cls) -> None:
        cls.folder = pathlib.Path(cls.enterClassContext(tempfile.TemporaryDirectory()))

    @classmethod
    def generate_stubs(cls) -> pathlib.Path:
        """The folder of the protocol's Python modules."""
        stubs = cls.folder / "stubs"
        subprocess.run(["bash", ROOT / "client" / "python" / "generate_stubs.sh", stubs], check=True)
        return stubs

    def run_program(
        self, name: str, *arguments: object, environment: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """One that ends by itself."""
        return subprocess.run(
            [self.binaries / name, *map(str, arguments)],
            capture_output=True,
            text=True,
            timeout=CALL_SECONDS,
            env={**os.environ, **(environment or {})},
        )

    def running(
        self, *flags: object, environment: Mapping[str, str] | None = None, client: Sequence[object] = ()
    ) -> contextlib.AbstractContextManager[Daemon]:
        return running(self.binaries, *flags, environment=environment, client=client)


def metrics_of(daemon: Daemon) -> str:
    with urllib.request.urlopen(f"http://{daemon.metrics_address}/metrics", timeout=10) as answer:
        text: str = answer.read().decode()
    return text


def main() -> None:
    """unittest.main() of the module that is run, and --bin."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--bin", type=pathlib.Path, default=DEFAULT_BINARIES)
    options, rest = parser.parse_known_args()
    RealProgramsTest.binaries = options.bin
    unittest.main(argv=[sys.argv[0], *rest])
