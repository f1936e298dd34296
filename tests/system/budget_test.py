"""The memory budget is a contract: resident set + swap <= budget + 64 MiB at every moment, with a store several times the budget
and eight sessions at once; the parts that moed reports agree with what the kernel counts."""

import pathlib
import re
import subprocess
import threading
from typing import ClassVar

from tests.real_programs import RealProgramsTest, main, metrics_of
from tools.daemon import DEMO_CHECKPOINT, Daemon

MIB = 1 << 20
STORE_BYTES = 544 * MIB
ALLOWANCE = 64 * MIB  # code, gRPC, allocator
SHARES = (0.15, 0.25)  # of the store
SESSIONS = 8
REQUESTS = 24
PROMPT = "The old king said to his daughter that the sea was wide and the night was long"


def resident_bytes(daemon: Daemon) -> int:
    return daemon.memory_bytes("VmRSS") + daemon.memory_bytes("VmSwap")


class Sampler(threading.Thread):
    """Largest resident set + swap seen, beside the kernel's own high-water mark."""

    def __init__(self, daemon: Daemon):
        super().__init__(daemon=True)
        self._daemon_process = daemon
        self._done = threading.Event()
        self._peak = 0

    def run(self) -> None:
        while not self._done.wait(0.02):
            self._peak = max(self._peak, resident_bytes(self._daemon_process))

    def peak(self) -> int:
        """Ends the sampling."""
        self._done.set()
        self.join()
        return max(self._peak, self._daemon_process.memory_bytes("VmHWM"))


class BudgetTest(RealProgramsTest):
    store: ClassVar[pathlib.Path]

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        cls.store = cls.folder / "random.moed"
        make_random_store = cls.binaries.parent / "tests" / "make_random_store"
        subprocess.run([make_random_store, cls.store, DEMO_CHECKPOINT / "tokenizer.json", str(STORE_BYTES)], check=True)

    def test_the_store_is_several_times_the_budget(self) -> None:
        self.assertGreaterEqual(self.store.stat().st_size, 512 * MIB)

    def test_memory_stays_within_the_budget_and_is_what_the_parts_say(self) -> None:
        for share in SHARES:
            budget = int(self.store.stat().st_size * share)
            flags = ("--store", self.store, "--memory-budget", budget, "--max-running", SESSIONS)
            with self.subTest(share=share), self.running(*flags) as daemon:
                sampler = Sampler(daemon)
                sampler.start()
                load = ("--concurrency", SESSIONS, "--requests", REQUESTS, "--max-new-tokens", 40, "--ignore-eos")
                report = daemon.json("bench", *load, "--prompt", PROMPT)
                self.assertEqual(report["ok"], REQUESTS, report)
                resident, metrics, peak = resident_bytes(daemon), metrics_of(daemon), sampler.peak()
                self.assertEqual(daemon.stop(), 0, daemon.log())
                parts = re.findall(r'^moe_memory_bytes\{part="([^"]+)"\} (\S+)$', metrics, re.M)
                total = sum(float(value) for _, value in parts)
                reported_budget = re.findall(r"^moe_memory_budget_bytes (\S+)$", metrics, re.M)
                self.assertEqual([float(value) for value in reported_budget], [budget])
                self.assertLessEqual(peak, budget + ALLOWANCE)
                self.assertLessEqual(total, budget, parts)
                # What is reported is resident up to a tenth (pages of KV not touched yet), and beside it lies at most the
                # allowance.
                self.assertLessEqual(0.9 * total, resident, parts)
                self.assertLessEqual(resident, total + ALLOWANCE, parts)

    def refusal(self, budget: int) -> str:
        """What moed says when it does not start with the budget."""
        flags = ("--memory-budget", budget, "--listen", "127.0.0.1:0", "--metrics-listen", "off")
        run = self.run_program("moed", "--store", self.store, *flags)
        self.assertNotEqual(run.returncode, 0)
        return run.stdout + run.stderr

    def test_the_smallest_budget_that_works_is_named(self) -> None:
        text = self.refusal(MIB)
        for part in ("trunk", "kv", "scratch", "tokenizer"):
            self.assertIn(part, text)
        named = re.search(r"smallest budget that works.*?(\d+)\b(?: bytes)?", text)
        assert named, text
        smallest = int(named.group(1))
        self.refusal(smallest - 1)
        with self.running("--store", self.store, "--memory-budget", smallest) as daemon:
            answer = daemon.json("generate", "--prompt", "Once", "--max-new-tokens", 2, "--ignore-eos")
            self.assertEqual(len(answer["token_ids"]), 2)
            self.assertLessEqual(daemon.memory_bytes("VmHWM"), smallest + ALLOWANCE)


if __name__ == "__main__":
    main()
