"""From the demo checkpoint to tokens on a client's screen with the real programs, within a budget far below the store's size; how the
programs fail; how the daemon ends."""
import ctypes
import json
import os
import signal
import subprocess
import sys
import tempfile
import unittest

import programs

options = None
PROMPT = "Once upon a time there was a little"


def cuda_devices():
    """How many the driver counts; none where there is no driver."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return 0
    count = ctypes.c_int(0)
    return count.value if driver.cuInit(0) == 0 and driver.cuDeviceGetCount(ctypes.byref(count)) == 0 else 0


class EndToEnd(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.checkpoint = os.path.join(options.source, "models", "tales-qwen")
        cls.store = programs.pack(options.bin, cls.checkpoint, os.path.join(cls.folder.name, "demo.moed"), "--expert-formats", "bf16",
                                  "--trunk-format", "bf16")

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def run_program(self, name, *arguments):
        return subprocess.run([os.path.join(options.bin, name), *map(str, arguments)], capture_output=True, text=True, timeout=120)

    def test_tokens_within_a_budget_far_below_the_store(self):
        self.assertEqual(self.run_program("moed-pack", "verify", self.store).returncode, 0)
        with programs.running(options.bin, "--store", self.store, "--memory-budget", "8MiB") as daemon:
            self.assertLess(8 << 20, 0.3 * os.path.getsize(self.store))
            greedy = ("generate", "--prompt", PROMPT, "--max-new-tokens", 64, "--temperature", 0, "--ignore-eos")
            first = daemon.json(*greedy)
            self.assertEqual(len(first["token_ids"]), 64)
            self.assertEqual(first["finish_reason"], "length")
            self.assertGreater(first["stats"]["bytes_read"], 0)
            self.assertEqual(daemon.json(*greedy)["token_ids"], first["token_ids"])
            self.assertEqual(daemon.moectl(*greedy).stdout.strip("\n"), first["text"].strip("\n"))
            self.assertEqual(daemon.stop(), 0, daemon.log())

    def test_a_cache_above_a_tokens_working_set_hits(self):
        with programs.running(options.bin, "--store", self.store, "--memory-budget", "14MiB") as daemon:
            stats = daemon.json("generate", "--prompt", PROMPT, "--max-new-tokens", 64, "--temperature", 0, "--ignore-eos")["stats"]
            self.assertGreater(stats["expert_hits"], 0)
            self.assertGreater(stats["expert_misses"], 0)

    def test_tokens_do_not_depend_on_the_budget_or_the_policy(self):
        answers = set()
        for flags in (("--memory-budget", "8MiB"), ("--memory-budget", "64MiB", "--policy", "lfu", "--predictor", "cross-layer-gate"),
                      ("--memory-budget", "10MiB", "--io-backend", "buffered", "--threads", "1", "--backend", "scalar")):
            with programs.running(options.bin, "--store", self.store, *flags) as daemon:
                answer = daemon.json("generate", "--prompt", PROMPT, "--max-new-tokens", 24, "--temperature", 0, "--ignore-eos")
                answers.add(tuple(answer["token_ids"]))
        self.assertEqual(len(answers), 1)

    def test_perplexity_is_that_of_transformers(self):
        """The golden figure was made by tools/parity/perplexity.py with float32 transformers."""
        with open(os.path.join(self.checkpoint, "heldout.perplexity.json")) as file:
            golden = json.load(file)
        with programs.running(options.bin, "--store", self.store, "--memory-budget", "64MiB") as daemon:
            score = daemon.json("score", "--file", os.path.join(self.checkpoint, "heldout.txt"), "--window", golden["window"])
        self.assertEqual(score["tokens"], golden["tokens"])
        self.assertLess(abs(score["perplexity"] / golden["perplexity"] - 1), 0.001)

    def test_tokenize_adds_nothing_and_knows_special_tokens(self):
        with programs.running(options.bin, "--store", self.store, "--memory-budget", "8MiB") as daemon:
            self.assertEqual(daemon.json("tokenize", "--text", "<|user|>")["token_ids"], [1])
            self.assertGreater(len(daemon.json("tokenize", "--text", "<|user|>", "--plain-special")["token_ids"]), 1)

    def test_a_session_continues(self):
        with programs.running(options.bin, "--store", self.store, "--memory-budget", "10MiB") as daemon:
            turn = lambda text: daemon.json("generate", "--session", "tale", "--prompt", text, "--max-new-tokens", 8, "--temperature", 0,
                                            "--ignore-eos")
            self.assertEqual(turn(PROMPT)["usage"]["cached_tokens"], 0)
            self.assertGreater(turn(" and then")["usage"]["cached_tokens"], 8)

    def test_exit_codes_of_the_client(self):
        no_server = self.run_program("moectl", "--server", "127.0.0.1:1", "--connect-timeout", "0.3", "info")
        self.assertEqual(no_server.returncode, 3, no_server.stderr)
        self.assertEqual(self.run_program("moectl", "--server", "nonsense", "info").returncode, 2)
        with programs.running(options.bin, "--store", self.store, "--memory-budget", "8MiB") as daemon:
            refused = daemon.moectl("generate", "--prompt", "x", "--temperature", "-1", check=False)
            self.assertEqual(refused.returncode, 4, refused.stderr)
            self.assertIn("temperature", refused.stderr)
            too_long = daemon.moectl("generate", "--prompt", "word " * 3000, check=False)
            self.assertEqual(too_long.returncode, 4, too_long.stderr)

    def test_the_python_example_streams(self):
        example = os.path.join(options.source, "client", "python")
        stubs = os.path.join(self.folder.name, "stubs")
        subprocess.run(["bash", os.path.join(example, "generate_stubs.sh"), stubs], check=True)
        with programs.running(options.bin, "--store", self.store, "--memory-budget", "8MiB") as daemon:
            run = subprocess.run([sys.executable, os.path.join(example, "stream.py"), PROMPT, "--server", daemon.address, "--max-new-tokens", "12"],
                                 capture_output=True, text=True, timeout=60, env={**os.environ, "PYTHONPATH": stubs})
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertGreater(len(run.stdout.strip()), 0)
        self.assertIn("12 tokens", run.stderr)

    def test_ctrl_c_cancels_cleanly(self):
        with programs.running(options.bin, "--store", self.store, "--memory-budget", "64MiB", "--threads", 1) as daemon:
            client = subprocess.Popen([os.path.join(options.bin, "moectl"), "--server", daemon.address, "generate", "--prompt", PROMPT,
                                       "--max-new-tokens", "1500", "--ignore-eos"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            client.stdout.read(1)  # it streams
            client.send_signal(signal.SIGINT)
            client.communicate(timeout=30)
            self.assertEqual(client.returncode, 130)
            self.assertEqual(daemon.stop(), 0, daemon.log())

    def test_the_daemon_refuses_what_it_does_not_know(self):
        for flags, named in (((), "--store"), (("--stor", "x"), "--store"), (("--policy", "mru"), "lru"), (("--predictor", "x"), "none"),
                             (("--io-backend", "x"), "io_uring"), (("--memory-budget", "8 apples"), "MiB"),
                             (("--store", "/nonexistent.moed"), "nonexistent")):
            flags = flags if "--store" in flags or "--stor" in flags or not flags else ("--store", self.store, *flags)
            run = self.run_program("moed", *flags)
            self.assertNotEqual(run.returncode, 0, flags)
            self.assertIn(named, run.stdout + run.stderr, flags)

    def test_the_cuda_backend_is_refused_with_the_reason(self):
        if (devices := cuda_devices()) > 0:
            self.skipTest(f"{devices} CUDA device(s) here, which this version has no kernels for")
        run = self.run_program("moed", "--store", self.store, "--memory-budget", "8MiB", "--backend", "cuda", "--listen", "127.0.0.1:0",
                               "--metrics-listen", "off")
        self.assertEqual(run.returncode, 1)
        self.assertRegex(run.stderr, r"(?m)^moed: no CUDA device: \S")

    def test_auto_computes_on_the_processor_and_names_what_it_took(self):
        with programs.running(options.bin, "--store", self.store, "--memory-budget", "8MiB") as daemon:
            taken = daemon.json("info")["server"]["compute_backend"]
            self.assertNotIn(taken, ("", "auto", "cuda"))
            self.assertIn(f"kernels: {taken};", daemon.log())

    def test_narrower_keys_and_values_leave_room_for_a_longer_context(self):
        contexts = []
        for kv_format in ("f32", "f16", "q8"):
            with programs.running(options.bin, "--store", self.store, "--memory-budget", "16MiB", "--kv-budget", "512KiB",
                                  "--kv-format", kv_format) as daemon:
                info = daemon.json("info")
                self.assertEqual(info["server"]["kv_format"], kv_format)
                contexts.append(info["model"]["max_context"])
                answer = daemon.moectl("generate", "--prompt", PROMPT, "--max-new-tokens", 24, "--temperature", 0).stdout
                self.assertGreater(len(answer.strip()), 24)
        self.assertLess(contexts[0] * 1.9, contexts[1])
        self.assertLess(contexts[1] * 1.7, contexts[2])

    def test_a_second_daemon_on_the_same_port_is_refused(self):
        with programs.running(options.bin, "--store", self.store, "--memory-budget", "8MiB") as daemon:
            second = self.run_program("moed", "--store", self.store, "--memory-budget", "8MiB", "--listen", daemon.address,
                                      "--metrics-listen", "off")
            self.assertNotEqual(second.returncode, 0)
            self.assertIn(daemon.address, second.stdout + second.stderr)

    def test_a_damaged_expert_fails_the_request_and_not_the_daemon(self):
        damaged = os.path.join(self.folder.name, "damaged.moed")
        with open(self.store, "rb") as source, open(damaged, "wb") as target:
            contents = bytearray(source.read())
            # One byte in every 64 KiB of the second half: many experts, not the trunk.
            for at in range(len(contents) // 2, len(contents), 65536):
                contents[at] ^= 1
            target.write(contents)
        self.assertNotEqual(self.run_program("moed-pack", "verify", damaged).returncode, 0)
        with programs.running(options.bin, "--store", damaged, "--memory-budget", "10MiB") as daemon:
            broken = daemon.moectl("generate", "--prompt", PROMPT, "--max-new-tokens", 8, check=False)
            self.assertEqual(broken.returncode, 1, broken.stderr)
            self.assertIn("DATA_LOSS", broken.stderr)
            self.assertEqual(daemon.moectl("health").returncode, 0)
            self.assertEqual(daemon.stop(), 0, daemon.log())


if __name__ == "__main__":
    options = programs.parse_options(__doc__)
    unittest.main(argv=sys.argv[:1] + ["-v"] + options.rest)
