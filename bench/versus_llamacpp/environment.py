"""Sees to it that the packages of requirements.txt can be imported: makes a virtual environment for them when they cannot."""

import importlib.util
import os
import shutil
import subprocess
import sys

from . import Say

MODULES = ("numpy", "gguf", "matplotlib", "grpc", "grpc_tools")
REQUIREMENTS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "requirements.txt")


def missing_modules() -> list[str]:
    return [module for module in MODULES if importlib.util.find_spec(module) is None]


def ensure(cache: str, say: Say) -> None:
    """Returns when everything is there; else runs the same command again with the Python of CACHE/venv and does not return."""
    missing = missing_modules()
    if not missing:
        return
    venv = os.path.join(cache, "venv")
    python = os.path.join(venv, "bin", "python")
    if os.path.realpath(sys.prefix) == os.path.realpath(venv):
        sys.exit(f"versus_llamacpp: {venv} lacks {', '.join(missing)}; remove it and run again")
    if not os.path.exists(python):
        say(f"{sys.executable} lacks {', '.join(missing)}: making {venv}")
        try:
            subprocess.run([sys.executable, "-m", "venv", venv], check=True)
            subprocess.run([python, "-m", "pip", "install", "--quiet", "--requirement", REQUIREMENTS], check=True)
        except (OSError, subprocess.CalledProcessError) as error:
            shutil.rmtree(venv, ignore_errors=True)
            sys.exit(
                f"versus_llamacpp: no virtual environment ({error}); Debian's Python needs python3-venv for it, "
                f"or run this with a Python that has the packages of {REQUIREMENTS}"
            )
    os.execv(python, [python, *sys.argv])
