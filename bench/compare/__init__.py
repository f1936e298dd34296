"""Daemons beside each other: the same cells, turns, journal, report and pictures, whoever contends."""

import pathlib
from collections.abc import Callable

ROOT = str(pathlib.Path(__file__).resolve().parents[2])  # of the repository

Say = Callable[[str], None]  # one line for the user


class CompareError(Exception):
    """The run cannot begin or go on; the text says why and what is allowed."""
