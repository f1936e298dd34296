"""The widener as a user runs it: what it writes, what it refuses, and what it leaves behind when it fails."""

import argparse
import fcntl
import json
import math
import os
import pathlib
import resource
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import unittest
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tools.widen import checkpoint, model, widening

ROOT = pathlib.Path(__file__).resolve().parents[2]
WIDEN = ROOT / "tools" / "widen"
Result = subprocess.CompletedProcess[str]
Tensors = dict[str, tuple[str, checkpoint.Array]]  # type and values by name
arguments: argparse.Namespace
TYPES = {"BF16": "<u2", "F16": "<f2", "F32": "<f4"}


def widen(*arguments: object, preexec_fn: Callable[[], None] | None = None) -> Result:
    command = [sys.executable, str(WIDEN), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, preexec_fn=preexec_fn)


def read_file(path: pathlib.Path) -> Tensors:
    """bfloat16 as float32."""
    data = path.read_bytes()
    length = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8 : 8 + length])
    header.pop("__metadata__", None)
    tensors: Tensors = {}
    for name, entry in header.items():
        begin, end = (8 + length + offset for offset in entry["data_offsets"])
        values = np.frombuffer(data[begin:end], TYPES[entry["dtype"]]).reshape(entry["shape"])
        if entry["dtype"] == "BF16":
            values = (values.astype(np.uint32) << 16).view(np.float32)
        tensors[name] = entry["dtype"], values
    return tensors


def write_file(path: pathlib.Path, tensors: Mapping[str, tuple[str, checkpoint.Array]]) -> None:
    """bfloat16 as 16-bit words."""
    header, offset = {}, 0
    for name, (type_name, values) in tensors.items():
        header[name] = {"dtype": type_name, "shape": list(values.shape), "data_offsets": [offset, offset + values.nbytes]}
        offset += values.nbytes
    write_raw(path, json.dumps(header).encode(), b"".join(values.tobytes() for _, values in tensors.values()))


def write_raw(path: pathlib.Path, header: bytes, data: bytes = b"") -> None:
    path.write_bytes(struct.pack("<Q", len(header)) + header + data)


def read_written(folder: pathlib.Path) -> Tensors:
    weight_map = json.loads((folder / "model.safetensors.index.json").read_text())["weight_map"]
    files = {name: read_file(folder / name) for name in set(weight_map.values())}
    assert sum(map(len, files.values())) == len(weight_map)
    return {name: files[file][name] for name, file in weight_map.items()}


def axis_copies(name: str, ndim: int, factor: int, qk_norm_per_head: bool) -> tuple[int, ...]:
    """How often the rows (or the vector) and the columns of a tensor are repeated."""
    if ndim == 1:
        return (1 if qk_norm_per_head and name.endswith(("q_norm.weight", "k_norm.weight")) else factor,)
    part = name.split(".")[-2]
    return (1 if part in ("embed_tokens", "lm_head", "gate", "shared_expert_gate") else factor), factor


class Folder(unittest.TestCase):
    def setUp(self) -> None:
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="moed-widen-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.input = self.folder / "in"
        self.output = self.folder / "out"

    def copy(self, name: str) -> None:
        shutil.copytree(arguments.checkpoints / name, self.input)

    def edit_config(self, **changes: Any) -> None:
        path = self.input / "config.json"
        config = json.loads(path.read_text())
        config.update(changes)
        path.write_text(json.dumps({key: value for key, value in config.items() if value != "absent"}))

    def assert_written(self, result: Result) -> None:
        self.assertEqual((result.returncode, result.stdout), (0, ""), result.stderr)
        self.assertFalse((self.folder / "out.partial").exists())

    def assert_refused(self, result: Result, *words: str, code: int = 1) -> None:
        self.assertEqual(result.returncode, code, result.stderr)
        for word in words:
            self.assertIn(word, result.stderr)
        self.assertNotIn("Traceback", result.stderr)
        self.assertFalse(self.output.exists())
        self.assertFalse((self.folder / "out.partial").exists())


class Written(Folder):
    def check(self, factor: int, expected_type: str) -> None:
        self.assert_written(widen(self.input, self.output, "--factor", factor))
        narrow, wide = read_file(self.input / "model.safetensors"), read_written(self.output)
        config = json.loads((self.input / "config.json").read_text())
        if config["tie_word_embeddings"]:
            narrow["lm_head.weight"] = narrow["model.embed_tokens.weight"]
        self.assertEqual(narrow.keys(), wide.keys())
        for name, (_, source) in narrow.items():
            with self.subTest(tensor=name):
                written_type, got = wide[name]
                self.assertEqual(written_type, expected_type)
                copies = axis_copies(name, source.ndim, factor, config["model_type"] == "qwen3_moe")
                self.assertEqual(got.shape, tuple(size * count for size, count in zip(source.shape, copies, strict=True)))
                if source.ndim == 1 or name == "model.embed_tokens.weight":
                    np.testing.assert_array_equal(got, np.tile(source, copies))
                    continue
                blocks = got.reshape(copies[0], source.shape[0], factor, source.shape[1])
                sums = blocks.sum(axis=2, dtype=np.float64)  # few bits each: no rounding
                np.testing.assert_array_equal(sums, np.broadcast_to(source.astype(np.float64), sums.shape))
                if factor >= 4:
                    self.assertEqual(len({block.tobytes() for block in blocks}), copies[0], "blocks of rows are the same")

    def test_shares_of_every_weight_sum_to_it(self) -> None:
        for number, name in enumerate(sorted(os.listdir(arguments.checkpoints))):
            with self.subTest(checkpoint=name):
                self.input, self.output = self.folder / f"in{number}", self.folder / f"out{number}"
                self.copy(name)
                model_type = json.loads((self.input / "config.json").read_text())["model_type"]
                if model_type in model.FAMILIES:
                    self.check((4, 8, 2, 16, 4)[number % 5], "BF16")
                else:
                    words = ["U8"] if name == "gpt_oss_mxfp4" else [model_type, *model.FAMILIES]
                    if not (self.input / "tokenizer.json").exists():
                        words = ["tokenizer.json is missing"]
                    self.assert_refused(widen(self.input, self.output, "--factor", 4), *words)

    def test_other_number_types(self) -> None:
        for type_name in ("F16", "F32"):
            with self.subTest(type=type_name):
                self.input, self.output = self.folder / f"in-{type_name}", self.folder / f"out-{type_name}"
                self.copy("mixtral")
                weights = self.input / "model.safetensors"
                write_file(
                    weights,
                    {name: (type_name, values.astype(TYPES[type_name])) for name, (_, values) in read_file(weights).items()},
                )
                self.check(16, "F32")
                self.assertEqual(
                    json.loads((self.output / "config.json").read_text())["dtype"],
                    "float32" if type_name == "F16" else "bfloat16",
                )

    def test_numbers_at_the_ends_of_bfloat16(self) -> None:
        self.copy("mixtral")
        weights = self.input / "model.safetensors"
        tensors = {
            name: ("BF16", (values.view(np.uint32) >> 16).astype("<u2")) for name, (_, values) in read_file(weights).items()
        }
        head = tensors["lm_head.weight"][1]
        head[0, :6] = 0x7F7F, 0x0200, 0x8000, 0x7F80, 0xFF80, 0x7FC1  # largest, 2^-123, -0, infinities, NaN
        write_file(weights, tensors)
        self.assert_written(widen(self.input, self.output, "--factor", 4))
        got = read_written(self.output)["lm_head.weight"][1][0].reshape(4, -1)[:, :6]
        source = (head[0, :6].astype(np.uint32) << 16).view(np.float32)
        np.testing.assert_array_equal(got, np.stack([source * np.float32(share) for share in (0.5, 0.25, 0.125, 0.125)]))

    def test_config_and_files(self) -> None:
        self.copy("qwen2_moe_sparse")
        (self.input / "chat_template.jinja").write_text("template")
        (self.input / "notes.txt").write_text("stays")
        self.assert_written(widen(self.input, self.output, "--factor", 4))
        narrow, wide = (json.loads((folder / "config.json").read_text()) for folder in (self.input, self.output))
        self.assertEqual(list(narrow), list(wide))
        changed = {key: wide[key] for key in narrow if narrow[key] != wide[key]}
        self.assertEqual(
            changed,
            {
                "hidden_size": 200,
                "intermediate_size": 168,
                "moe_intermediate_size": 88,
                "shared_expert_intermediate_size": 136,
                "num_attention_heads": 20,
                "num_key_value_heads": 4,
                "tie_word_embeddings": False,
            },
        )
        self.assertEqual(
            sorted(os.listdir(self.output)),
            [
                "chat_template.jinja",
                "config.json",
                "generation_config.json",
                "model-00001-of-00001.safetensors",
                "model.safetensors.index.json",
                "tokenizer.json",
            ],
        )
        self.assertEqual((self.output / "tokenizer.json").read_bytes(), (self.input / "tokenizer.json").read_bytes())

    def test_sharded_input_gives_the_same(self) -> None:
        self.copy("olmoe")
        self.assert_written(widen(self.input, self.output, "--factor", 2))
        weights = self.input / "model.safetensors"
        tensors = {name: ("F32", values) for name, (_, values) in read_file(weights).items()}
        expected = read_written(self.output)
        weights.unlink()
        shutil.rmtree(self.output)
        names = sorted(tensors)
        halves = {"a.safetensors": names[::2], "b.safetensors": names[1::2]}
        for shard, part in halves.items():
            write_file(self.input / shard, {name: tensors[name] for name in part})
        index = {"weight_map": {name: shard for shard, part in halves.items() for name in part}}
        (self.input / "model.safetensors.index.json").write_text(json.dumps(index))
        self.assert_written(widen(self.input, self.output, "--factor", 2))
        got = read_written(self.output)
        for name in names:
            np.testing.assert_array_equal(got[name][1], expected[name][1])

    def test_output_is_cut_into_shards(self) -> None:
        arrays = {name: np.arange(count, dtype="<f4") for name, count in (("a", 3000), ("b", 1), ("c", 9000), ("d", 4))}
        entries = [checkpoint.Entry(name, "F32", values.shape) for name, values in arrays.items()]
        self.output.mkdir()
        noted: list[object] = []
        checkpoint.write_shards(str(self.output), entries, lambda name: [arrays[name]], noted.append, 12010, noted.append)
        self.assertEqual([count for count in noted if isinstance(count, int)], [values.nbytes for values in arrays.values()])
        self.assertEqual(
            sorted(path.name for path in self.output.glob("*.safetensors")),
            [f"model-0000{n}-of-00003.safetensors" for n in (1, 2, 3)],
        )
        for name, (_, values) in read_written(self.output).items():
            np.testing.assert_array_equal(values, arrays[name])

    def test_shares(self) -> None:
        for copies in [1 << n for n in range(9)]:
            shares = [2.0**-exponent for exponent in widening.share_exponents(copies)]
            self.assertEqual((len(shares), sum(shares)), (copies, 1.0))
            self.assertEqual(len(set(shares)), 3 if copies >= 4 else 1)

    def test_dry_run_names_the_bytes(self) -> None:
        self.copy("mixtral")
        result = widen(self.input, self.output, "--factor", 2, "--dry-run")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assert_written(widen(self.input, self.output, "--factor", 2))
        total = json.loads((self.output / "model.safetensors.index.json").read_text())["metadata"]["total_size"]
        self.assertIn(f"({total} bytes)", result.stdout)


class Refused(Folder):
    def test_factors(self) -> None:
        self.copy("mixtral")
        for factor in ("0", "1", "3", "-2", "2.0", "x", "", "512", "\u0662", "9" * 9999):
            self.assert_refused(widen(self.input, self.output, f"--factor={factor}"), "is no power of two from 2 to 256", code=2)

    def test_existing_target_is_kept(self) -> None:
        self.copy("mixtral")
        self.output.mkdir()
        result = widen(self.input, self.output, "--factor", 2)
        self.assertEqual((result.returncode, os.listdir(self.output)), (1, []))
        self.assertIn("exists", result.stderr)

    def test_missing_files(self) -> None:
        self.assert_refused(widen(self.input, self.output, "--factor", 2), "is not a folder")
        cases = {"config.json": "is missing", "tokenizer.json": "is missing", "model.safetensors": "has neither"}
        for name, words in cases.items():
            self.copy("mixtral")
            (self.input / name).unlink()
            self.assert_refused(widen(self.input, self.output, "--factor", 2), words)
            shutil.rmtree(self.input)

    def test_configs(self) -> None:
        self.copy("qwen2_moe")
        good = (self.input / "config.json").read_text()
        for changes, words in (
            ({"model_type": "llama"}, ["model_type = 'llama'", "mixtral, olmoe, qwen2_moe, qwen3_moe"]),
            ({"model_type": ["mixtral"]}, ["model_type"]),
            ({"model_type": "absent"}, ["model_type = None"]),
            ({"hidden_size": "absent"}, ["key hidden_size is missing"]),
            ({"hidden_size": "54"}, ["hidden_size = '54'", "an integer"]),
            ({"num_attention_heads": 12}, ["hidden_size = 54 is no multiple of num_attention_heads = 12"]),
            ({"hidden_size": 108}, ["'model.embed_tokens.weight' has shape [261, 54]; by config.json it has [261, 108]"]),
            ({"num_attention_heads": 0}, ["num_attention_heads = 0"]),
            ({"num_attention_heads": True}, ["num_attention_heads = True"]),
            ({"num_key_value_heads": 2}, ["no multiple of num_key_value_heads = 2"]),
            ({"num_experts": 1 << 60}, ["num_experts ="]),
            ({"num_experts": 12}, ["has shape [11, 54]; by config.json it has [12, 54]"]),
            ({"num_hidden_layers": 1}, ["has 47 tensors", "model.layers.1.input_layernorm.weight"]),
            ({"num_hidden_layers": 3}, ["no tensor 'model.layers.2.input_layernorm.weight'"]),
            ({"num_hidden_layers": 1 << 24}, ["no tensor"]),
            ({"mlp_only_layers": 7}, ["mlp_only_layers = 7"]),
            ({"tie_word_embeddings": "yes"}, ["tie_word_embeddings = 'yes'"]),
            ({"quantization_config": {"bits": 4}}, ["quantization_config"]),
        ):
            with self.subTest(changes=changes):
                self.edit_config(**changes)
                self.assert_refused(widen(self.input, self.output, "--factor", 2), *words)
                (self.input / "config.json").write_text(good)
        for text in ("", "{", "[]", "[" * 100000, "\x00", "\udcff"):
            with self.subTest(text=text[:9]):
                (self.input / "config.json").write_bytes(text.encode(errors="surrogateescape"))
                self.assert_refused(widen(self.input, self.output, "--factor", 2), "config.json")

    def test_weight_files(self) -> None:
        self.copy("mixtral")
        weights = self.input / "model.safetensors"
        good = weights.read_bytes()
        entry = {"dtype": "BF16", "shape": [2, 2], "data_offsets": [0, 8]}
        cases = [
            (b"", "is no safetensors file"),
            (b"abc", "is no safetensors file"),
            (good[:20], "is no safetensors file"),
            (good[:-1], "do not fit"),
            (struct.pack("<Q", 1 << 63) + b"{}", "is no safetensors file"),
            (struct.pack("<Q", 2) + b"{]", "header"),
            (struct.pack("<Q", 2) + b"[]", "no object"),
        ]
        for change, words in (
            ({"dtype": "I8"}, "expected one of BF16, F16, F32"),
            ({"dtype": []}, "expected one of"),
            ({"shape": [2, -2]}, "non-negative"),
            ({"shape": "x"}, "non-negative"),
            ({"shape": [2, 3]}, "do not fit"),
            ({"shape": [1 << 40, 1 << 40]}, "do not fit"),
            ({"data_offsets": [8, 0]}, "do not fit"),
            ({"data_offsets": [0]}, "non-negative"),
            ({"data_offsets": [8, 16]}, "do not fit"),
        ):
            header = json.dumps({"lm_head.weight": {**entry, **change}}).encode()
            cases.append((struct.pack("<Q", len(header)) + header + bytes(8), words))
        for data, words in cases:
            with self.subTest(data=data[:120]):
                weights.write_bytes(data)
                self.assert_refused(widen(self.input, self.output, "--factor", 2), words)

    def test_indexes(self) -> None:
        self.copy("mixtral")
        index = self.input / "model.safetensors.index.json"
        index.write_text("{}")
        self.assert_refused(widen(self.input, self.output, "--factor", 2), "has both")
        (self.input / "model.safetensors").rename(self.input / "a.safetensors")
        bad_maps: tuple[object, ...] = (None, [], {"x": 1}, {"x": "../in/a.safetensors"}, {"x": ""})
        cases = [(bad, 'expected an object "weight_map"') for bad in bad_maps]
        for weight_map, words in (*cases, ({"x": "b.safetensors"}, "b.safetensors is missing"), ({}, "has no tensor")):
            with self.subTest(weight_map=weight_map):
                index.write_text(json.dumps({"weight_map": weight_map}))
                self.assert_refused(widen(self.input, self.output, "--factor", 2), words)
        shutil.copyfile(self.input / "a.safetensors", self.input / "b.safetensors")
        index.write_text(json.dumps({"weight_map": {"x": "a.safetensors", "y": "b.safetensors"}}))
        self.assert_refused(widen(self.input, self.output, "--factor", 2), "is in both")


class Ended(Folder):
    def test_disk_too_small(self) -> None:
        """2 GB of holes would become petabytes."""
        size = 16384
        self.copy("mixtral")
        self.edit_config(
            hidden_size=size,
            intermediate_size=size,
            num_attention_heads=128,
            num_key_value_heads=128,
            num_local_experts=1,
            num_hidden_layers=1,
            vocab_size=4,
        )
        layer = "model.layers.0."
        shapes = {
            "model.embed_tokens": [4, size],
            "model.norm": [size],
            "lm_head": [4, size],
            layer + "input_layernorm": [size],
            layer + "post_attention_layernorm": [size],
            layer + "block_sparse_moe.gate": [1, size],
        }
        attention = [f"self_attn.{part}_proj" for part in "qkvo"]
        expert = [f"block_sparse_moe.experts.0.w{part}" for part in (1, 2, 3)]
        for part in attention + expert:
            shapes[layer + part] = [size, size]
        header, offset = {}, 0
        for name, shape in shapes.items():
            count = 2 * math.prod(shape)
            header[f"{name}.weight"] = {"dtype": "BF16", "shape": shape, "data_offsets": [offset, offset + count]}
            offset += count
        weights = self.input / "model.safetensors"
        write_raw(weights, json.dumps(header).encode())
        os.truncate(weights, weights.stat().st_size + offset)
        self.assert_refused(widen(self.input, self.output, "--factor", 256), "free;", "are needed")

    def test_failing_write(self) -> None:
        self.copy("mixtral")

        def limit() -> None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))

        self.assert_refused(widen(self.input, self.output, "--factor", 4, preexec_fn=limit), "File too large", "model-00001")

    def test_interrupted(self) -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            command = [sys.executable, str(WIDEN), str(ROOT / "models" / "tales-qwen"), str(self.output), "--factor", "8"]
            with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
                while not list(self.folder.glob("out.partial/model-*")) and process.poll() is None:
                    os.sched_yield()
                process.send_signal(number)
                _, errors = process.communicate(timeout=60)
            result = subprocess.CompletedProcess(command, process.returncode, "", errors)
            self.assert_refused(result, "interrupted", code=130)

    def test_takes_over_what_a_killed_run_left(self) -> None:
        self.copy("mixtral")
        partial = self.folder / "out.partial"
        partial.mkdir()
        for name in ("model-00007-of-00009.safetensors", "config.json"):
            (partial / name).write_text("left")
        self.assert_written(widen(self.input, self.output, "--factor", 2))
        self.assertNotIn("model-00007-of-00009.safetensors", os.listdir(self.output))
        self.assertEqual(json.loads((self.output / "config.json").read_text())["hidden_size"], 120)

    def test_partial_folder_of_somebody_else(self) -> None:
        self.copy("mixtral")
        partial, other = self.folder / "out.partial", self.folder / "other"
        other.mkdir()
        (other / "config.json").write_text("mine")
        partial.symlink_to(other)
        self.assertEqual(widen(self.input, self.output, "--factor", 2).returncode, 1)
        self.assertTrue((other / "config.json").exists())
        partial.unlink()
        partial.mkdir()
        (partial / "thesis.tex").write_text("mine")
        result = widen(self.input, self.output, "--factor", 2)
        self.assertEqual((result.returncode, os.listdir(partial)), (1, ["thesis.tex"]))
        self.assertIn("thesis.tex", result.stderr)

    def test_one_run_at_a_time(self) -> None:
        self.copy("mixtral")
        partial = self.folder / "out.partial"
        partial.mkdir()
        descriptor = os.open(partial, os.O_RDONLY)
        self.addCleanup(os.close, descriptor)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        result = widen(self.input, self.output, "--factor", 2)
        self.assertEqual((result.returncode, partial.exists()), (1, True))
        self.assertIn("another run is writing", result.stderr)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--checkpoints", type=pathlib.Path, default=ROOT / "build" / "release" / "checkpoints")
    arguments, rest = parser.parse_known_args()
    unittest.main(argv=[sys.argv[0], *rest])
