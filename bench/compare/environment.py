"""What has to be there before a run: Python's packages, in a virtual environment where they are missing, and moed's protocol."""

import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence

from . import ROOT, Say

REQUIREMENTS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "requirements.txt")


def missing_of(modules: Sequence[str]) -> list[str]:
    missing = [module for module in modules if importlib.util.find_spec(module) is None]
    debian = shutil.which("protoc") and shutil.which("grpc_python_plugin")
    return missing if debian or importlib.util.find_spec("grpc_tools") else [*missing, "grpc_tools"]


def ensure(cache: str, modules: Sequence[str], say: Say) -> None:
    """Returns when everything is there; else runs the same command again with the Python of CACHE/venv and does not return."""
    missing = missing_of(modules)
    if not missing:
        return
    venv = os.path.join(cache, "venv")
    python = os.path.join(venv, "bin", "python")
    if os.path.realpath(sys.prefix) == os.path.realpath(venv):
        sys.exit(f"compare: {venv} lacks {', '.join(missing)}; remove it and run again")
    if not os.path.exists(python):
        say(f"{sys.executable} lacks {', '.join(missing)}: making {venv}")
        try:
            subprocess.run([sys.executable, "-m", "venv", venv], check=True)
            subprocess.run([python, "-m", "pip", "install", "--quiet", "--requirement", REQUIREMENTS], check=True)
        except (OSError, subprocess.CalledProcessError) as error:
            shutil.rmtree(venv, ignore_errors=True)
            sys.exit(
                f"compare: no virtual environment ({error}); Debian's Python needs python3-venv for it, "
                f"or run this with a Python that has the packages of {REQUIREMENTS}"
            )
    os.execv(python, [python, *sys.argv])


def make_stubs(cache: str) -> None:
    """Makes the modules moe.v1.* from proto/, and lets them be imported."""
    stubs = os.path.join(cache, "stubs")
    os.makedirs(stubs, exist_ok=True)
    if importlib.util.find_spec("grpc_tools"):
        protos = [os.path.join("moe", "v1", name) for name in ("inference.proto", "control.proto")]
        folders = [f"--proto_path={os.path.join(ROOT, 'proto')}", f"--python_out={stubs}", f"--grpc_python_out={stubs}"]
        subprocess.run([sys.executable, "-m", "grpc_tools.protoc", *folders, *protos], check=True)
    else:
        subprocess.run(["bash", os.path.join(ROOT, "client", "python", "generate_stubs.sh"), stubs], check=True)
    if stubs not in sys.path:
        sys.path.insert(0, stubs)
