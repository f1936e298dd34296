"""bench/compare llamacpp without llama.cpp and root: control groups in a folder, cells, streams, tables, GGUF files."""

import argparse
import contextlib
import importlib.util
import io
import json
import os
import shutil
import tempfile
import unittest
from typing import Any

from bench.compare import ROOT, CompareError, cgroup
from bench.compare.journal import Journal, Key, Record
from bench.compare.llamacpp import cells, llama, options, report
from bench.compare.spread import Spread
from tools.server_process import ServerError

V1_MOUNTS = """30 20 0:29 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct
31 20 0:32 / /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory
32 20 0:35 / /sys/fs/cgroup/blkio rw,relatime - cgroup cgroup rw,blkio
33 20 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
"""
V2_MOUNTS = "31 20 0:32 / /sys/fs/cgroup rw,relatime shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"


class InFolder(unittest.TestCase):
    def setUp(self) -> None:
        self.folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.folder)

    def write(self, path: str, text: str) -> None:
        path = self.folder + path
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w") as file:
            file.write(text)

    def read(self, path: str) -> str:
        with open(self.folder + path) as file:
            return file.read()

    def make_v1(self) -> None:
        self.write("/proc/self/mountinfo", V1_MOUNTS)
        self.write("/proc/self/cgroup", "4:memory:/user/a\n7:blkio:/\n0::/\n")
        os.makedirs(self.folder + "/sys/fs/cgroup/memory/user/a")
        os.makedirs(self.folder + "/sys/fs/cgroup/blkio")

    def make_v2(self, root_controllers: str = "cpu io memory", enabled: str = "") -> None:
        self.write("/proc/self/mountinfo", V2_MOUNTS)
        self.write("/proc/self/cgroup", "0::/user.slice/session.scope\n")
        self.write("/sys/fs/cgroup/cgroup.controllers", root_controllers)
        self.write("/sys/fs/cgroup/cgroup.subtree_control", "cpu")
        self.write("/sys/fs/cgroup/user.slice/cgroup.subtree_control", enabled)
        self.write("/sys/fs/cgroup/user.slice/session.scope/cgroup.subtree_control", "")

    def made(self, **arguments: Any) -> tuple[cgroup.Group, dict[str, str]]:
        group = cgroup.Group(root=self.folder, **arguments)
        folders = {controller: folder for controller, (_, folder) in group._folders.items()}
        self.addCleanup(group.remove)
        for folder in folders.values():
            self.addCleanup(shutil.rmtree, folder, ignore_errors=True)
        return group, {controller: folder[len(self.folder) :] for controller, folder in folders.items()}


class OptionsTest(unittest.TestCase):
    def test_what_cannot_be_is_named(self) -> None:
        parser = argparse.ArgumentParser()
        options.add_options(parser)
        for words, named in (
            (["--coded", "0"], "--coded 0: 1 to 99 percent"),
            (["--coded", "100"], "--coded 100: 1 to 99 percent"),
            (["--coded", "4", "--gguf", "x.gguf"], "--gguf does not go with --coded"),
            (["--formats", "q4,q5"], "q5 unknown; known are q4, q8"),
            (["--turns", "0"], "--turns has to be 1 or more"),
        ):
            said = io.StringIO()
            with self.subTest(words=words), contextlib.redirect_stderr(said), self.assertRaises(SystemExit):
                options.checked(parser, parser.parse_args(words))
            self.assertIn(named, said.getvalue())
        self.assertEqual(options.checked(parser, parser.parse_args(["--coded", "4"])).coded, 4)
        self.assertIsNone(options.checked(parser, parser.parse_args([])).coded)


class CgroupTest(InFolder):
    def test_version_1_is_a_child_of_the_own_group_of_each_controller(self) -> None:
        self.make_v1()
        name = f"moed-compare-{os.getpid()}"
        self.write(f"/sys/fs/cgroup/memory/user/a/{name}/memory.memsw.limit_in_bytes", "")
        _, folders = self.made(limit_bytes=5 << 20, device="8:16", read_bytes_per_second=90_000_000)
        self.assertEqual(folders, {"memory": f"/sys/fs/cgroup/memory/user/a/{name}", "io": f"/sys/fs/cgroup/blkio/{name}"})
        self.assertEqual(self.read(folders["memory"] + "/memory.limit_in_bytes"), str(5 << 20))
        self.assertEqual(self.read(folders["memory"] + "/memory.memsw.limit_in_bytes"), str(5 << 20))
        self.assertEqual(self.read(folders["io"] + "/blkio.throttle.read_bps_device"), "8:16 90000000")

    def test_version_2_is_under_the_nearest_group_that_passes_the_controllers_on(self) -> None:
        self.make_v2(enabled="io memory")
        _, folders = self.made(limit_bytes=5 << 20, device="8:16", read_bytes_per_second=90_000_000)
        self.assertEqual(set(folders.values()), {f"/sys/fs/cgroup/user.slice/moed-compare-{os.getpid()}"})
        self.assertEqual(self.read(folders["memory"] + "/memory.max"), str(5 << 20))
        self.assertEqual(self.read(folders["io"] + "/io.max"), "8:16 rbps=90000000")

    def test_version_2_passes_the_controllers_on_at_the_root_when_nobody_does(self) -> None:
        self.make_v2()
        self.assertEqual(cgroup.find_parent("memory", self.folder), ("v2", self.folder + "/sys/fs/cgroup"))
        self.assertEqual(self.read("/sys/fs/cgroup/cgroup.subtree_control"), "+memory")

    def test_a_controller_that_is_not_there_is_named(self) -> None:
        self.make_v2(root_controllers="cpu")
        with self.assertRaisesRegex(cgroup.CgroupError, "no controller 'io'"):
            cgroup.find_parent("io", self.folder)
        self.write("/proc/self/mountinfo", "22 27 0:21 / /proc rw,relatime - proc proc rw\n")
        with self.assertRaisesRegex(cgroup.CgroupError, "no control groups with 'memory' are mounted"):
            cgroup.find_parent("memory", self.folder)

    def test_the_command_joins_every_folder_before_it_runs(self) -> None:
        self.make_v1()
        group, folders = self.made()
        command = group.command(["moed", "--store", "a b"])
        self.assertEqual(command[-3:], ["moed", "--store", "a b"])
        for folder in folders.values():
            self.assertIn(f"{folder}/cgroup.procs", command[2])


class CellsTest(unittest.TestCase):
    def all(self) -> list[cells.Cell]:
        return list(cells.all_cells(("q4", "q8"), (1, 2), (32, 128, 512, 8192)))

    def test_names_are_unique_and_every_pair_of_limit_and_disk_is_there(self) -> None:
        names = [cell.name for cell in self.all()]
        self.assertEqual(len(names), len(set(names)))
        for name in (
            "q4/ram",
            "q8/ram",
            "q4/75/native",
            "q4/25/native",
            "q8/25/native",
            "q4/50/sata",
            "q4/25/sata",
            "q4/50/sd",
            "q4/25/sd",
            "q4/ram/eight",
        ):
            self.assertIn(name, names)

    def test_llama_is_repacked_only_where_its_memory_is_not_limited(self) -> None:
        for cell in self.all():
            settings = [c for c in cell.contenders if c.program == "llama.cpp"]
            self.assertTrue(settings)
            self.assertEqual(any(c.repack for c in settings), cell.share is None, cell.name)
            read_aheads = {c.read_ahead_kib for c in settings}
            self.assertEqual(read_aheads, {None} if cell.share is None else {32, 128, 512, 8192}, cell.name)

    def test_limits_are_whole_mebibytes_below_the_share(self) -> None:
        for cell in self.all():
            limit = cell.limit_bytes(2_296_988_832)
            if cell.share is None or limit is None:
                self.assertIs(limit, cell.share)
            else:
                self.assertEqual(limit % (1 << 20), 0)
                self.assertLessEqual(limit, 2_296_988_832 * cell.share / 100)
                self.assertGreater(limit, 2_296_988_832 * cell.share / 100 - (1 << 20))

    def test_quick_has_both_programs_in_each_of_its_cells(self) -> None:
        quick = [cell for format_ in ("q4", "gguf") for cell in cells.quick_cells((format_,), (1, 2), (128, 8192))]
        self.assertEqual([cell.name for cell in quick], list(cells.QUICK))
        for cell in quick:
            self.assertEqual({c.program for c in cell.contenders}, {"moed", "llama.cpp"})

    def test_the_best_read_ahead_under_a_limit_is_sought_and_the_best_setting_in_ram_known(self) -> None:
        chosen = {cell.name: cell.contenders for cell in cells.best_settings(self.all(), (1, 2))}
        self.assertEqual([c.name for c in chosen["q4/ram"]], ["moed, 2 threads", "llama.cpp, 2 threads, repack"])
        limited = [(c.threads, c.read_ahead_kib) for c in chosen["q4/25/native"] if c.program == "llama.cpp"]
        self.assertEqual(limited, [(threads, kib) for threads in (1, 2) for kib in (32, 128, 512, 8192)])

    def test_read_aheads_are_small_ones_and_the_devices_own(self) -> None:
        self.assertEqual(cells.tried_read_aheads(8192, True), [32, 128, 512, 8192])
        self.assertEqual(cells.tried_read_aheads(512, True), [32, 128, 512])
        self.assertEqual(cells.tried_read_aheads(8192, False), [8192], "it cannot be set")

    def test_a_gguf_file_has_the_cells_that_ask_about_a_format(self) -> None:
        names = [cell.name for cell in cells.all_cells(("gguf",), (1, 2), (128, 8192))]
        self.assertEqual(names, ["gguf/ram", "gguf/50/native", "gguf/25/native"])

    def test_contexts_hold_what_their_requests_need(self) -> None:
        for cell in self.all():
            p = cell.protocol
            self.assertLessEqual(p.sessions * (p.prompt_tokens + p.skipped_tokens + p.counted_tokens + 1), p.context_tokens)
            self.assertLess(512 if p.prefills else 0, p.context_tokens)

    def test_later_turns_keep_the_fastest_setting_of_each_number_of_threads(self) -> None:
        cell = next(cell for cell in self.all() if cell.name == "q4/25/native")
        rates = {c.name: (2 if c.read_ahead_kib == 8192 else 1) for c in cell.contenders if c.program == "llama.cpp"}
        self.assertEqual(cells.next_turn(cell, 0, rates), cell.contenders)
        later = [("moed", 1, None), ("llama.cpp", 1, 8192), ("moed", 2, None), ("llama.cpp", 2, 8192)]
        for turn, order in ((1, later[1:] + later[:1]), (2, later[2:] + later[:2]), (4, later)):
            found = [(c.program, c.threads, c.read_ahead_kib) for c in cells.next_turn(cell, turn, rates)]
            self.assertEqual(found, order, "another one begins")
        rates["llama.cpp, 1 thread, no repack, read-ahead 8192 KiB"] = 3
        only_best = cells.next_turn(cell, 1, rates, each_thread_count=False)
        self.assertEqual([(c.threads, c.read_ahead_kib) for c in only_best if c.program == "llama.cpp"], [(1, 8192)])


class StreamTest(unittest.TestCase):
    def test_events_of_llama_server(self) -> None:
        self.assertEqual(llama.parse_event(b'data: {"content":"a","stop":false,"timings":{"predicted_n":3}}\n'), (3, False))
        self.assertEqual(llama.parse_event(b'data: {"stop":true,"timings":{"predicted_n":9}}\n'), (9, True))
        self.assertIsNone(llama.parse_event(b"\n"))
        with self.assertRaisesRegex(ServerError, "too long"):
            llama.parse_event(b'data: {"error":{"message":"too long"}}\n')

    def test_rows_of_llama_bench(self) -> None:
        rows = [{"n_prompt": 512, "n_gen": 0, "avg_ts": 90.5}, {"n_prompt": 0, "n_gen": 64, "avg_ts": 27.25}]
        self.assertEqual(llama.parse_bench(json.dumps(rows)), {"prefill": 90.5, "decode": 27.25})


RUN = {
    "cpu": "Test", "isa": ["avx2"], "processors": 2, "memory_bytes": 8 << 30, "kernel": "6.1", "read_ahead_kib": 128,
    "llama.cpp": "llama-cpp-python 0.3.36", "moed": "build 1",
}  # fmt: skip


class ReportTest(InFolder):
    CELL = "q4/25/native"
    SLOW, FAST = "llama.cpp, 1 thread, no repack, read-ahead 128 KiB", "llama.cpp, 2 threads, no repack, read-ahead 128 KiB"

    def setUp(self) -> None:
        super().setUp()
        self.journal = Journal(self.folder + "/j.jsonl", RUN)
        for turn, (ours, slow, fast) in enumerate(((10.0, 2.0, 3.0), (12.0, 2.5, 5.0), (11.0, 2.0, 4.0))):
            held = {"decode": ours, "first_token_seconds": 2.0, "experts_in_cache": 0.25, "hit_ratio": 0.5}
            self.add(self.CELL, "moed, 2 threads", turn, "", **held)
            self.add(self.CELL, self.SLOW, turn, decode=slow)
            self.add(self.CELL, self.FAST, turn, decode=fast, first_token_seconds=3.0, read_bytes_per_second=(2 + turn) * 1e8)
        self.add("q4/ram", "llama.cpp, 2 threads, repack", 0, failed="killed by signal 9")

    def add(self, cell: str, contender: str, turn: int, failed: str = "", **figures: float) -> None:
        self.journal.add(Record(Key("speed", cell, contender, turn), figures, {"at": f"2030-01-01 00:00:0{turn}"}, failed))

    def test_medians_spread_and_the_best_setting(self) -> None:
        decode, first = report.METRICS[0], report.METRICS[2]
        best = report.best(self.journal, self.CELL, "llama.cpp", decode)
        self.assertEqual(best, (self.FAST, Spread(4.0, 3.0, 5.0, 3)))
        best = report.best(self.journal, self.CELL, "llama.cpp", decode, threads=1)
        self.assertEqual(best, (self.SLOW, Spread(2.0, 2.0, 2.5, 3)))
        self.assertIsNone(report.best(self.journal, "q4/ram", "moed", decode))
        self.add(self.CELL, self.SLOW, 3, first_token_seconds=2.5)
        best = report.best(self.journal, self.CELL, "llama.cpp", first)
        self.assertEqual(best and best.contender, self.SLOW, "the sooner the better")

    def test_tables_name_the_ratio_the_cache_what_failed_and_what_was_not_possible(self) -> None:
        facts = {"command": "python3 bench/compare llamacpp --quick"}
        self.journal.add(Record(Key("cell", self.CELL, ""), {"disk": 1e9, "memory 1": 10e9, "memory 2": 20e9}, facts))
        self.journal.add(Record(Key("cell", "q4/25/sd", ""), {}, facts, "no controller 'io'"))
        self.journal.add(Record(Key("cell", "q4/50/sd", ""), {}, facts, "busy"))
        self.journal.add(Record(Key("cell", "q4/50/sd", "", 1), {"disk": 2e9, "memory 1": 10e9, "memory 2": 20e9}, facts))
        names = {"store": "a.moed", "gguf": "a.gguf"}
        self.journal.add(Record(Key("files", "q4", ""), {"store_bytes": 3e9, "gguf_bytes": 2e9}, names))
        self.journal.add(Record(Key("llama-bench", "q4", "2 threads, repack"), {"prefill": 9, "decode": 2}))
        text = report.markdown(Journal(self.folder + "/j.jsonl", None))
        for part in (
            "| q4, limit 25 % of the file, disk native | 2 | 11.0 (10.0 to 12.0) | 4.00 (3.00 to 5.00) | "
            "2 threads, no repack, read-ahead 128 KiB | 2.75 (2.00 to 4.00) | 25% of the experts, 50% hits | 300 MB/s |",
            "| 2.00 (2.00 to 2.00) | 3.00 (3.00 to 3.00) | 2 threads, no repack, read-ahead 128 KiB | 1.50 (1.50 to 1.50) |",
            "disk 90 MB/s |  | not possible here: no controller 'io'",
            "- q4, everything in RAM: llama.cpp, 2 threads, repack: killed by signal 9",
            "memory reads 10.0 GB/s (10.0 to 10.0) with 1 thread, 20.0 GB/s (20.0 to 20.0) with 2 threads; "
            "disk reads 1500 MB/s (1000 to 2000)",
            "Command: `python3 bench/compare llamacpp --quick`, 2030-01-01 00:00:00 to 2030-01-01 00:00:02.",
            "Versions: llama.cpp llama-cpp-python 0.3.36; moed build 1.",
            "- q4: a.moed 3.00 GB, a.gguf 2.00 GB",
            "q4, 2 threads, repack: prefill 9.00, decode 2.00 tokens/s",
        ):
            self.assertIn(part, text)
        self.assertNotIn("busy", text, "it was possible later")

    def test_results_go_between_the_marks_and_nowhere_else(self) -> None:
        self.write("/doc.md", f"before\n{report.BEGIN}\nold\n{report.END}\nafter\n")
        report.write_docs(self.folder + "/doc.md", "new", "x/benchmarks.png")
        self.assertEqual(
            self.read("/doc.md"),
            f"before\n{report.BEGIN}\n![moed beside llama.cpp](benchmarks.png)\n\nnew\n{report.END}\nafter\n",
        )
        self.write("/other.md", "nothing")
        with self.assertRaises(OSError):
            report.write_docs(self.folder + "/other.md", "new", "benchmarks.png")
        with open(os.path.join(ROOT, "docs", "benchmarks.md")) as file:
            text = file.read()
        self.assertLess(text.index(report.BEGIN), text.index(report.END))


@unittest.skipUnless(importlib.util.find_spec("gguf"), "the gguf package is not installed")
class GgufTest(InFolder):
    def test_values_come_back_from_the_file(self) -> None:
        import gguf
        import numpy as np

        from bench.compare.llamacpp import gguf_from_checkpoint
        from tools.widen.checkpoint import read_sources

        checkpoint = os.path.join(ROOT, "models", "tales-qwen")
        gguf_from_checkpoint.write_gguf(checkpoint, self.folder + "/q8.gguf", "q8_0")
        tensors = {tensor.name: tensor for tensor in gguf.GGUFReader(self.folder + "/q8.gguf").tensors}
        sources = read_sources(checkpoint)
        down = [f"model.layers.3.mlp.experts.{expert}.down_proj.weight" for expert in range(32)]
        for name, original in (
            ("blk.3.ffn_down_exps.weight", down),
            ("blk.0.attn_q.weight", ["model.layers.0.self_attn.q_proj.weight"]),
            ("blk.7.ffn_gate_inp.weight", ["model.layers.7.mlp.gate.weight"]),
        ):
            wanted = np.concatenate([gguf_from_checkpoint.as_float32(sources[part]) for part in original])
            found = gguf.quants.dequantize(tensors[name].data, tensors[name].tensor_type).reshape(wanted.shape)
            self.assertLess(np.abs(found - wanted).max(), np.abs(wanted).max() / 200, name)

    def test_random_blocks_are_weights_of_every_code(self) -> None:
        import gguf
        import numpy as np

        from bench.compare.llamacpp import random_gguf

        for shape in random_gguf.SHAPES.values():
            for kind in {*shape.expert_types, *shape.embedding_types, shape.trunk_type}:
                blocks = random_gguf.random_blocks(kind, 512, np.random.default_rng(1))
                weights = gguf.quants.dequantize(blocks, kind)
                self.assertAlmostEqual(float(weights.std()), random_gguf.DEVIATION, delta=0.003, msg=kind.name)
                self.assertAlmostEqual(float(weights.mean()), 0, delta=0.002, msg=kind.name)

    def test_a_narrow_shape_routes_as_the_whole_one(self) -> None:
        from bench.compare.llamacpp import random_gguf

        whole = random_gguf.SHAPES["gpt-oss-20b"]
        narrow = random_gguf.narrowed(whole, 9)
        self.assertEqual((narrow.layers, narrow.experts, narrow.top_k), (whole.layers, whole.experts, whole.top_k))
        self.assertEqual((narrow.hidden, narrow.expert_ffn, narrow.heads % narrow.kv_heads), (320, 320, 0))
        self.assertEqual(random_gguf.layers_for(narrow, 2e9), whole.layers)
        for by in (0, 7):
            with self.assertRaisesRegex(SystemExit, f"--narrow {by}: 2880"):
                random_gguf.narrowed(whole, by)

    def test_what_it_cannot_write_is_named(self) -> None:
        from bench.compare.llamacpp import gguf_from_checkpoint

        self.write("/config.json", '{"model_type": "gpt2"}')
        with self.assertRaisesRegex(CompareError, "'gpt2'; this can write qwen2_moe, mixtral"):
            gguf_from_checkpoint.write_gguf(self.folder, self.folder + "/out.gguf", "q4_0")


if __name__ == "__main__":
    unittest.main()
