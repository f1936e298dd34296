#!/usr/bin/env python3
"""Widens a trained Mixture-of-Experts checkpoint by a factor without changing what it computes.

Every hidden channel, attention head and expert channel is repeated F times, blocks after blocks. A weight that is summed over
repeated inputs is split among the copies by powers of two that sum to one, unequal from 4 copies on, and another copy leads in
every block of rows. Embeddings, norms and biases are repeated; routers and the output head are only split; the output head is
written apart from the embeddings. Experts grow F^2 times; logits and routing stay, but for the order of summation. bfloat16 and
float32 keep their format; float16 becomes float32, for it has no room for the shares.

Example: python3 tools/widen models/tales-qwen /tmp/tales-qwen-x16 --factor 16
"""

import argparse
import fcntl
import os
import pathlib
import re
import shutil
import signal
import sys
from collections.abc import Iterator

if not __package__:  # run by its path
    sys.path[0] = str(pathlib.Path(__file__).resolve().parents[2])

from tools.widen import checkpoint, model, widening
from tools.widen.errors import WidenError
from tools.widen.progress import Progress, bytes_text

MAX_FACTOR = 256
FACTORS = [str(1 << n) for n in range(1, MAX_FACTOR.bit_length())]
SHARD_BYTES = 1_000_000_000
REQUIRED = ("tokenizer.json",)
OPTIONAL = (
    "added_tokens.json",
    "chat_template.jinja",
    "chat_template.json",
    "generation_config.json",
    "LICENSE",
    "merges.txt",
    "special_tokens_map.json",
    "tokenizer.model",
    "tokenizer_config.json",
    "vocab.json",
)
WRITTEN = ("config.json", checkpoint.INDEX, *REQUIRED, *OPTIONAL)
SHARD_PATTERN = r"model-\d+-of-\d+\.safetensors"


def factor_of(text: str) -> int:
    if text not in FACTORS:
        raise argparse.ArgumentTypeError(f"{text!r} is no power of two from 2 to {MAX_FACTOR}")
    return int(text)


def arguments() -> argparse.Namespace:
    assert __doc__
    description, example = __doc__.rsplit("\n\n", 1)
    parser = argparse.ArgumentParser(
        prog="widen", description=description, epilog=example, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("source", metavar="IN", help="checkpoint: a folder with config.json, tokenizer.json and safetensors")
    parser.add_argument("target", metavar="OUT", help="folder to write; must not exist")
    parser.add_argument("--factor", metavar="F", type=factor_of, required=True, help=f"a power of two from 2 to {MAX_FACTOR}")
    parser.add_argument("--dry-run", action="store_true", help="only check the input and print the bytes that would be written")
    return parser.parse_args()


def note(text: object) -> None:
    print(f"widen: {text}", file=sys.stderr)


class Interruption:
    """SIGINT and SIGTERM, answered between pieces: an exception raised wherever a signal happens to arrive may leave NumPy's
    native code as another one."""

    def __init__(self) -> None:
        self._asked = False
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._ask)

    def _ask(self, *_: object) -> None:
        self._asked = True

    def check(self) -> None:
        if self._asked:
            raise KeyboardInterrupt


class Widening:
    """The checked input and the plan of the output."""

    def __init__(self, folder: str, factor: int):
        if not os.path.isdir(folder):
            raise WidenError(f"{folder} is not a folder; expected a Hugging Face checkpoint")
        config = checkpoint.read_json(os.path.join(folder, "config.json"))
        for name in REQUIRED:
            if not os.path.isfile(os.path.join(folder, name)):
                raise WidenError(f"{os.path.join(folder, name)} is missing")
        self.folder = folder
        self.sources = checkpoint.read_sources(folder)
        self.tensors: dict[str, model.Tensor] = {}
        for tensor in model.TensorList(config, factor):
            self._check_source(tensor)
            self.tensors[tensor.name] = tensor
        self._check_all_used()
        self.config = model.widened_config(config, factor)
        if any(source.type == "F16" for source in self.sources.values()):
            self.config.update({key: "float32" for key in ("dtype", "torch_dtype") if key in config})
        self.entries = [self._entry(tensor) for tensor in self.tensors.values()]
        self.bytes = sum(entry.bytes for entry in self.entries)

    def _check_source(self, tensor: model.Tensor) -> None:
        source = self.sources.get(tensor.source)
        if source is None:
            raise WidenError(f"{self.folder} has no tensor {tensor.source!r}, which its config.json asks for")
        if source.shape != tensor.source_shape():
            raise WidenError(
                f"{source.path}: tensor {tensor.source!r} has shape {list(source.shape)}; by config.json it has "
                f"{list(tensor.source_shape())}"
            )

    def _check_all_used(self) -> None:
        used = {tensor.source for tensor in self.tensors.values()} | {"lm_head.weight"}  # of tied ends a copy may lie beside
        unknown = sorted(self.sources.keys() - used)
        if unknown:
            names = ", ".join(unknown[:3]) + (", ..." if len(unknown) > 3 else "")
            raise WidenError(f"{self.folder} has {len(unknown)} tensors that its config.json does not ask for: {names}")

    def _entry(self, tensor: model.Tensor) -> checkpoint.Entry:
        return checkpoint.Entry(tensor.name, checkpoint.WRITTEN_TYPES[self.sources[tensor.source].type], tensor.shape())

    def _pieces(self, name: str) -> Iterator[checkpoint.Array]:
        tensor = self.tensors[name]
        return widening.pieces(tensor, self.sources[tensor.source].read())

    def write(self, folder: str, on_written: checkpoint.OnWritten) -> None:
        checkpoint.write_shards(folder, self.entries, self._pieces, on_written, SHARD_BYTES, note)
        for name in REQUIRED + OPTIONAL:
            if os.path.isfile(os.path.join(self.folder, name)):
                shutil.copyfile(os.path.join(self.folder, name), os.path.join(folder, name))
        checkpoint.write_json(os.path.join(folder, "config.json"), self.config)


def claim(partial: str) -> int:
    """An empty folder that no other run writes to. Returns its descriptor, which holds the claim."""
    if not os.path.lexists(partial):
        os.mkdir(partial)
    descriptor = os.open(partial, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise WidenError(f"another run is writing {partial}") from None
    left = os.listdir(partial)  # by a run that was killed
    foreign = [name for name in left if name not in WRITTEN and not re.fullmatch(SHARD_PATTERN, name)]
    if foreign:
        raise WidenError(f"{partial} is in the way and holds {foreign[0]!r}, which is not of this program; remove it")
    for name in left:
        os.remove(os.path.join(partial, name))
    return descriptor


def check_space(parent: str, needed: int) -> None:
    free = shutil.disk_usage(parent).free
    if free < needed:
        raise WidenError(f"{parent} has {bytes_text(free)} free; {bytes_text(needed)} are needed")


def run(options: argparse.Namespace, interruption: Interruption) -> None:
    target = os.path.abspath(options.target)
    parent = os.path.dirname(target)
    if os.path.lexists(target):
        raise WidenError(f"{target} exists; remove it or choose another name")
    plan = Widening(options.source, options.factor)
    if options.dry_run:
        print(f"would write {bytes_text(plan.bytes)} ({plan.bytes} bytes) in {len(plan.entries)} tensors")
        return
    os.makedirs(parent, exist_ok=True)
    partial = f"{target}.partial"
    descriptor = claim(partial)
    try:
        check_space(parent, plan.bytes)
        progress = Progress("widened", plan.bytes, sys.stderr)

        def on_written(count: int) -> None:
            interruption.check()
            progress.add(count)

        plan.write(partial, on_written)
        os.fsync(descriptor)
        os.rename(partial, target)
        progress.finish()
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise


def main() -> int:
    options = arguments()
    try:
        run(options, Interruption())
    except KeyboardInterrupt:
        note("interrupted, nothing is left behind")
        return 130
    except (WidenError, OSError) as error:
        note(error)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
