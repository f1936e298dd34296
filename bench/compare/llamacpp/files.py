"""The files that are compared: from one checkpoint a store for moed and a GGUF for llama.cpp, made when they are not there."""

import json
import os
import pathlib
import subprocess
import sys
from dataclasses import dataclass

from tools.daemon import pack
from tools.server_process import ServerError

from .. import ROOT, Say
from . import gguf_from_checkpoint

DEMO = os.path.join(ROOT, "models", "tales-qwen")
WIDEN_FACTOR = 16
GGUF_TYPES = {"q4": "q4_0", "q8": "q8_0"}


@dataclass(frozen=True)
class Files:
    store: str
    gguf: str

    @property
    def bytes(self) -> int:
        """What limits are shares of: llama.cpp's file, since moed's may be coded."""
        return os.path.getsize(self.gguf)


def widened_demo(folder: str, say: Say, factor: int = WIDEN_FACTOR) -> str:
    target = os.path.join(folder, f"tales-qwen-x{factor}")
    if not os.path.exists(target):
        say(f"widening {DEMO} by {factor} into {target}")
        widen = os.path.join(ROOT, "tools", "widen")
        subprocess.run([sys.executable, widen, DEMO, target, "--factor", str(factor)], check=True)
    return target


def check_formats(programs: str, store: str, format_: str) -> None:
    """The GGUF has one type for all matrices, so the store has to as well."""
    output = subprocess.run([os.path.join(programs, "moed-pack"), "inspect", store, "--json"], capture_output=True, text=True)
    if output.returncode:
        raise ServerError(f"{store}: {output.stderr.strip()}")
    held = json.loads(output.stdout)
    formats = (held["precisions"][0]["format"], next(tensor["format"] for tensor in held["trunk"] if tensor["name"] == "embed"))
    if formats != (format_, format_):
        raise ServerError(
            f"{store} holds experts in {formats[0]} and the trunk in {formats[1]}; both have to be {format_}: remove it"
        )


def prepare_gguf(programs: str, gguf: str, folder: str, say: Say) -> Files:
    """A file as people have it, and a store with the same blocks."""
    files = Files(os.path.join(folder, f"{pathlib.Path(gguf).stem}.moed"), gguf)
    if not os.path.exists(files.store):
        say(f"packing {files.store}")
        pack(pathlib.Path(programs), pathlib.Path(gguf), pathlib.Path(files.store))
    return files


def prepare(programs: str, checkpoint: str, folder: str, format_: str, coded: int | None, say: Say) -> Files:
    """`coded`: percent that coding has to save of moed's experts (moed-pack --coded); None: they are not coded."""
    name = os.path.join(folder, os.path.basename(os.path.normpath(checkpoint)))
    kind, coding = ("", []) if coded is None else (f"-coded{coded}", [f"--coded={coded}"])
    files = Files(f"{name}-{format_}{kind}.moed", f"{name}-{GGUF_TYPES[format_]}.gguf")
    if not os.path.exists(files.store):
        say(f"packing {files.store}")
        binaries, source, store = (pathlib.Path(path) for path in (programs, checkpoint, files.store))
        pack(binaries, source, store, "--expert-formats", format_, "--trunk-format", format_, *coding)
    check_formats(programs, files.store, format_)
    if not os.path.exists(files.gguf):
        say(f"writing {files.gguf}")
        gguf_from_checkpoint.write_gguf(checkpoint, files.gguf, GGUF_TYPES[format_])
    return files
