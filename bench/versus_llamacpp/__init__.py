"""moed beside llama.cpp: the same checkpoint, machine, texts, memory limit and disk."""

import pathlib
from collections.abc import Callable

ROOT = str(pathlib.Path(__file__).resolve().parents[2])  # of the repository

Say = Callable[[str], None]  # one line for the user
