"""From the demo checkpoint to tokens on a client's screen with the real programs, within a budget far below the store's size; how
the programs fail; how the daemon ends."""

import ctypes
import json
import os
import pathlib
import signal
import subprocess
import sys
from typing import Any, ClassVar

from tests.real_programs import RealProgramsTest, main
from tools.daemon import DEMO_CHECKPOINT, ROOT, pack_demo

PROMPT = "Once upon a time there was a little"


def cuda_devices() -> int:
    """How many the driver counts; none where there is no driver."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return 0
    count = ctypes.c_int(0)
    return count.value if driver.cuInit(0) == 0 and driver.cuDeviceGetCount(ctypes.byref(count)) == 0 else 0


class EndToEnd(RealProgramsTest):
    store: ClassVar[pathlib.Path]

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        cls.store = pack_demo(cls.binaries, cls.folder, "bf16", "bf16")

    def test_tokens_within_a_budget_far_below_the_store(self) -> None:
        self.assertEqual(self.run_program("moed-pack", "verify", self.store).returncode, 0)
        with self.running("--store", self.store, "--memory-budget", "8MiB") as daemon:
            self.assertLess(8 << 20, 0.3 * self.store.stat().st_size)
            greedy = ("generate", "--prompt", PROMPT, "--max-new-tokens", 64, "--temperature", 0, "--ignore-eos")
            first = daemon.json(*greedy)
            self.assertEqual(len(first["token_ids"]), 64)
            self.assertEqual(first["finish_reason"], "length")
            self.assertGreater(first["stats"]["bytes_read"], 0)
            self.assertEqual(daemon.json(*greedy)["token_ids"], first["token_ids"])
            self.assertEqual(daemon.moectl(*greedy).stdout.strip("\n"), first["text"].strip("\n"))
            self.assertEqual(daemon.stop(), 0, daemon.log())

    def test_a_cache_above_a_tokens_working_set_hits(self) -> None:
        with self.running("--store", self.store, "--memory-budget", "14MiB") as daemon:
            stats = daemon.json("generate", "--prompt", PROMPT, "--max-new-tokens", 64, "--temperature", 0, "--ignore-eos")[
                "stats"
            ]
            self.assertGreater(stats["expert_hits"], 0)
            self.assertGreater(stats["expert_misses"], 0)

    def test_tokens_do_not_depend_on_the_budget_or_the_policy(self) -> None:
        answers = set()
        for flags in (
            ("--memory-budget", "8MiB"),
            ("--memory-budget", "64MiB", "--policy", "lfu", "--predictor", "cross-layer-gate"),
            ("--memory-budget", "10MiB", "--io-backend", "buffered", "--threads", "1", "--backend", "scalar"),
        ):
            with self.running("--store", self.store, *flags) as daemon:
                answer = daemon.json("generate", "--prompt", PROMPT, "--max-new-tokens", 24, "--temperature", 0, "--ignore-eos")
                answers.add(tuple(answer["token_ids"]))
        self.assertEqual(len(answers), 1)

    def test_an_answer_is_what_its_format_says(self) -> None:
        schema = self.folder / "schema.json"
        properties = {"name": {"type": "string", "maxLength": 12}, "age": {"type": "integer", "minimum": 1, "maximum": 99}}
        schema.write_text(json.dumps({"type": "object", "properties": properties, "required": ["name", "age"]}))
        flags = ("generate", "--prompt", PROMPT, "--max-new-tokens", 300, "--json-schema", schema)
        texts = []
        for threads in (1, 2):
            with self.running("--store", self.store, "--memory-budget", "24MiB", "--threads", threads) as daemon:
                greedy = daemon.json(*flags, "--temperature", 0)
                self.assertEqual(greedy["finish_reason"], "stop")
                texts.append(greedy["text"])
                for seed in range(4):
                    answer = daemon.json(*flags, "--seed", seed)
                    self.assertEqual(answer["finish_reason"], "stop", answer["text"])
                    person = json.loads(answer["text"])
                    self.assertIn(person["age"], range(1, 100))
                    self.assertLessEqual(len(person["name"]), 12)
                pattern = daemon.json(*flags[:5], "--regex", "(Anna|Tom) said [a-z ]{5,20}!", "--temperature", 0)
                self.assertRegex(pattern["text"], r"\A(Anna|Tom) said [a-z ]{5,20}!\Z")
                refused = daemon.moectl(*flags[:5], "--regex", "a(?=b)", check=False)
                self.assertNotEqual(refused.returncode, 0)
                self.assertIn("format.regex: at byte 1: '(?=' is not supported", refused.stderr)
        self.assertEqual(texts[0], texts[1])

    def test_perplexity_is_that_of_transformers(self) -> None:
        """The golden figure was made by tools/parity/perplexity.py with float32 transformers."""
        golden = json.loads((DEMO_CHECKPOINT / "heldout.perplexity.json").read_text())
        with self.running("--store", self.store, "--memory-budget", "64MiB") as daemon:
            score = daemon.json("score", "--file", DEMO_CHECKPOINT / "heldout.txt", "--window", golden["window"])
        self.assertEqual(score["tokens"], golden["tokens"])
        self.assertLess(abs(score["perplexity"] / golden["perplexity"] - 1), 0.001)

    def test_tokenize_adds_nothing_and_knows_special_tokens(self) -> None:
        with self.running("--store", self.store, "--memory-budget", "8MiB") as daemon:
            self.assertEqual(daemon.json("tokenize", "--text", "<|user|>")["token_ids"], [1])
            self.assertGreater(len(daemon.json("tokenize", "--text", "<|user|>", "--plain-special")["token_ids"]), 1)

    def test_a_session_continues(self) -> None:
        with self.running("--store", self.store, "--memory-budget", "10MiB") as daemon:

            def turn(text: str) -> dict[str, Any]:
                flags = ("--max-new-tokens", 8, "--temperature", 0, "--ignore-eos")
                return daemon.json("generate", "--session", "tale", "--prompt", text, *flags)

            self.assertEqual(turn(PROMPT)["usage"]["cached_tokens"], 0)
            self.assertGreater(turn(" and then")["usage"]["cached_tokens"], 8)

    def test_exit_codes_of_the_client(self) -> None:
        no_server = self.run_program("moectl", "--server", "127.0.0.1:1", "--connect-timeout", "0.3", "info")
        self.assertEqual(no_server.returncode, 3, no_server.stderr)
        self.assertEqual(self.run_program("moectl", "--server", "nonsense", "info").returncode, 2)
        with self.running("--store", self.store, "--memory-budget", "8MiB") as daemon:
            refused = daemon.moectl("generate", "--prompt", "x", "--temperature", "-1", check=False)
            self.assertEqual(refused.returncode, 4, refused.stderr)
            self.assertIn("temperature", refused.stderr)
            too_long = daemon.moectl("generate", "--prompt", "word " * 3000, check=False)
            self.assertEqual(too_long.returncode, 4, too_long.stderr)

    def test_the_python_example_streams(self) -> None:
        example = ROOT / "client" / "python" / "stream.py"
        environment = {**os.environ, "PYTHONPATH": str(self.generate_stubs())}
        with self.running("--store", self.store, "--memory-budget", "8MiB") as daemon:
            command = [sys.executable, str(example), PROMPT, "--server", daemon.address, "--max-new-tokens", "12"]
            command += ["--session", "tale"]
            run = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment)
            sessions = daemon.moectl("session", "list", check=False).stdout
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertIn("tale", sessions)
        self.assertGreater(len(run.stdout.strip()), 0)
        self.assertIn("12 tokens", run.stderr)

    def test_ctrl_c_cancels_cleanly(self) -> None:
        with self.running("--store", self.store, "--memory-budget", "64MiB", "--threads", 1) as daemon:
            command = [str(self.binaries / "moectl"), "--server", daemon.address, "generate", "--prompt", PROMPT]
            command += ["--max-new-tokens", "1400", "--ignore-eos"]
            client = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            assert client.stdout is not None
            client.stdout.read(1)  # it streams
            client.send_signal(signal.SIGINT)
            client.communicate(timeout=30)
            self.assertEqual(client.returncode, 130)
            self.assertEqual(daemon.stop(), 0, daemon.log())

    def test_the_daemon_refuses_what_it_does_not_know(self) -> None:
        store = ("--store", str(self.store))
        cases: tuple[tuple[tuple[str, ...], str], ...] = (
            ((), "--store"),
            (("--stor", "x"), "--store"),
            ((*store, "--policy", "mru"), "lru"),
            ((*store, "--predictor", "x"), "none"),
            ((*store, "--io-backend", "x"), "io_uring"),
            ((*store, "--memory-budget", "8 apples"), "MiB"),
            (("--store", "/nonexistent.moed"), "nonexistent"),
        )
        for flags, named in cases:
            run = self.run_program("moed", *flags)
            self.assertNotEqual(run.returncode, 0, flags)
            self.assertIn(named, run.stdout + run.stderr, flags)

    def test_the_cuda_backend_is_refused_with_the_reason(self) -> None:
        if (devices := cuda_devices()) > 0:
            self.skipTest(f"{devices} CUDA device(s) here")
        run = self.run_program(
            "moed",
            "--store",
            self.store,
            "--memory-budget",
            "8MiB",
            "--backend",
            "cuda",
            "--listen",
            "127.0.0.1:0",
            "--metrics-listen",
            "off",
        )
        self.assertEqual(run.returncode, 1)
        self.assertRegex(run.stderr, r"(?m)^moed: no CUDA device: \S")

    def test_auto_names_what_it_took_and_that_it_takes_no_device(self) -> None:
        with self.running("--store", self.store, "--memory-budget", "8MiB") as daemon:
            taken = daemon.json("info")["server"]["compute_backend"]
            self.assertNotIn(taken, ("", "auto"))
            self.assertIn(f"kernels: {taken};", daemon.log())
            self.assertNotEqual(taken, "cuda")
            self.assertIn("compute backend cuda is taken by name alone", daemon.log())

    def test_narrower_keys_and_values_leave_room_for_a_longer_context(self) -> None:
        contexts = []
        for kv_format in ("f32", "f16", "q8"):
            with self.running(
                "--store", self.store, "--memory-budget", "16MiB", "--kv-budget", "512KiB", "--kv-format", kv_format
            ) as daemon:
                info = daemon.json("info")
                self.assertEqual(info["server"]["kv_format"], kv_format)
                contexts.append(info["model"]["max_context"])
                answer = daemon.moectl("generate", "--prompt", PROMPT, "--max-new-tokens", 24, "--temperature", 0).stdout
                self.assertGreater(len(answer.strip()), 24)
        self.assertLess(contexts[0] * 1.9, contexts[1])
        self.assertLess(contexts[1] * 1.7, contexts[2])

    def test_a_second_daemon_on_the_same_port_is_refused(self) -> None:
        with self.running("--store", self.store, "--memory-budget", "8MiB") as daemon:
            second = self.run_program(
                "moed", "--store", self.store, "--memory-budget", "8MiB", "--listen", daemon.address, "--metrics-listen", "off"
            )
            self.assertNotEqual(second.returncode, 0)
            self.assertIn(daemon.address, second.stdout + second.stderr)

    def test_a_damaged_expert_fails_the_request_and_not_the_daemon(self) -> None:
        damaged = self.folder / "damaged.moed"
        contents = bytearray(self.store.read_bytes())
        # One byte in every 64 KiB of the second half: many experts, not the trunk.
        for at in range(len(contents) // 2, len(contents), 65536):
            contents[at] ^= 1
        damaged.write_bytes(contents)
        self.assertNotEqual(self.run_program("moed-pack", "verify", damaged).returncode, 0)
        with self.running("--store", damaged, "--memory-budget", "10MiB") as daemon:
            broken = daemon.moectl("generate", "--prompt", PROMPT, "--max-new-tokens", 8, check=False)
            self.assertEqual(broken.returncode, 1, broken.stderr)
            self.assertIn("DATA_LOSS", broken.stderr)
            self.assertEqual(daemon.moectl("health").returncode, 0)
            self.assertEqual(daemon.stop(), 0, daemon.log())


if __name__ == "__main__":
    main()
