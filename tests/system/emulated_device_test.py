"""The whole daemon over the CUDA kernels in emulation: it streams the processor's tokens, with the same logprobs."""

import pathlib
import re
from typing import Any, ClassVar

from tests.real_programs import CALL_SECONDS, RealProgramsTest, main, metrics_of
from tools.daemon import Daemon, pack_demo, running
from tools.server_process import ServerError

USES = r'moe_expert_tier_uses_total\{tier="(\w+)",by="(\w+)"\} (\d+)'
PROMPT = "Once upon a time there was a little"


class EmulatedDevice(RealProgramsTest):
    store: ClassVar[pathlib.Path]
    emulated: ClassVar[pathlib.Path]  # a folder with the daemon that has the backend, and the usual client

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        cls.store = pack_demo(cls.binaries, cls.folder, "q4", "q8")
        cls.emulated = cls.folder / "bin"
        cls.emulated.mkdir()
        (cls.emulated / "moed").symlink_to((cls.binaries / ".." / "tests" / "moed_emulated").resolve())
        (cls.emulated / "moectl").symlink_to((cls.binaries / "moectl").resolve())

    def test_an_answer_is_that_of_the_processor(self) -> None:

        def answer(daemon: Daemon) -> dict[str, Any]:
            flags = ("--max-new-tokens", 8, "--temperature", 0, "--ignore-eos", "--logprobs", 3)
            answer = daemon.json("generate", "--prompt", PROMPT, *flags)
            self.assertEqual(len(answer["token_ids"]), 8)
            return {name: answer[name] for name in ("text", "token_ids", "logprobs")}

        flags = ("--store", self.store, "--memory-budget", "14MiB", "--threads", 1)
        with self.running(*flags) as daemon:
            expected = answer(daemon)
        with running(self.emulated, *flags, "--backend", "cuda-emulated") as daemon:
            self.assertEqual(answer(daemon), expected)
            self.assertEqual(daemon.stop(), 0, daemon.log())
        discrete = {"MOED_EMULATED_DEVICE": "discrete"}
        device_flags = ("--backend", "cuda-emulated", "--device-budget", "7MiB")
        with running(self.emulated, *flags, *device_flags, environment=discrete) as daemon:
            self.assertEqual(answer(daemon), expected)
            uses = {tuple(place): float(count) for *place, count in re.findall(USES, metrics_of(daemon))}
            self.assertGreater(uses["host", "processor"], 0, uses)  # what was never measured is tried
            self.assertGreater(uses["device", "device"], 0, uses)
            self.assertIn("experts come to the device at ", daemon.log())
            tier = daemon.json("stats")["stats"]["device"]
            for name, place in (("used_there", ("device", "device")), ("used_by_processor", ("host", "processor"))):
                self.assertEqual(int(tier[name]), uses[place])
            self.assertRegex(daemon.moectl("stats").stdout, r"device +experts [\d.]+ MiB of [\d.]+ MiB +used there \d+")
            self.assertEqual(daemon.stop(), 0, daemon.log())
        with running(self.emulated, *flags, *device_flags, "--processor-experts", "off", environment=discrete) as daemon:
            self.assertEqual(answer(daemon), expected)
            self.assertRegex(metrics_of(daemon), r'moe_device_steps_total\{way="not_all_there"\} [1-9]')
            self.assertRegex(metrics_of(daemon), r'moe_expert_tier_uses_total\{tier="host",by="processor"\} 0')

    def test_a_lost_device_leaves_the_model_to_the_processor(self) -> None:
        flags = ("--store", self.store, "--memory-budget", "14MiB", "--threads", 1)
        # Enough beside a device, but not for the trunk as well.
        small = ("--store", self.store, "--memory-budget", "4MiB", "--threads", 1)
        request = ("generate", "--prompt", PROMPT, "--max-new-tokens", 8, "--temperature", 0, "--ignore-eos")
        with self.running(*flags) as daemon:
            expected = daemon.json(*request)["token_ids"]
        environment = {"MOED_EMULATED_DEVICE": "discrete", "MOED_EMULATED_LAUNCHES": "300"}
        lost = ("--backend", "cuda-emulated", "--device-budget", "7MiB")
        with running(self.emulated, *flags, *lost, environment=environment) as daemon:
            self.assertIn("moe_lost_devices_total 0", metrics_of(daemon))
            failed = daemon.moectl(*request, check=False).stderr
            self.assertIn("the compute backend 'cuda-emulated' failed", failed)
            daemon.wait_for(lambda: daemon.json("info")["server"].get("lost_device"), "the loss to be told")
            daemon.wait_for(lambda: daemon.moectl("health", check=False).returncode == 0, "the model to be served again")
            self.assertEqual(daemon.json(*request)["token_ids"], expected)
            self.assertNotEqual(daemon.json("info")["server"]["compute_backend"], "cuda-emulated")
            self.assertIn("moe_lost_devices_total 1", metrics_of(daemon))
            self.assertEqual(daemon.stop(), 0, daemon.log())
        with running(self.emulated, *flags, *lost, "--device-lost", "fail", environment=environment) as daemon:
            for _ in range(2):
                self.assertIn("failed", daemon.moectl(*request, check=False).stderr)
            self.assertEqual(daemon.moectl("health").returncode, 0)
        with running(self.emulated, *flags, *lost, "--device-lost", "exit", environment=environment) as daemon:
            self.assertIn("failed", daemon.moectl(*request, check=False).stderr)
            self.assertEqual(daemon.wait(CALL_SECONDS), 1)
            self.assertIn("the process ends: --device-lost exit: the compute backend 'cuda-emulated' failed", daemon.log())
        with running(self.emulated, *small, *lost, environment=environment) as daemon:
            self.assertIn("failed", daemon.moectl(*request, check=False).stderr)
            daemon.wait_for(lambda: "the model was not changed as asked" in daemon.log(), "the load to fail")
            refused = daemon.moectl(*request, check=False).stderr
            self.assertRegex(
                refused, r"no model is loaded: loading .* failed: a memory budget of 4194304 bytes \(4.0 MiB\) is too small"
            )
            self.assertRegex(refused, r"trunk +[\d.]+ MiB(.|\n)*the smallest budget that works: \d+ bytes")
            self.assertNotEqual(daemon.moectl("health", check=False).returncode, 0)
            self.assertTrue(daemon.json("info")["server"]["lost_device"])
            self.assertEqual(daemon.stop(), 0, daemon.log())

    def test_fast_matmul_is_for_requests_that_allow_it(self) -> None:
        flags = ("--store", self.store, "--memory-budget", "64MiB", "--threads", 1)
        request = ("generate", "--prompt", 5 * PROMPT, "--max-new-tokens", 2, "--temperature", 0, "--ignore-eos", "--logprobs", 1)
        with self.running(*flags) as daemon:
            exact = daemon.json(*request)
            refused = daemon.moectl(*request, "--fidelity", "fast-matmul", check=False)
            self.assertIn("--fast-matmul on", refused.stderr)
        with self.assertRaisesRegex(ServerError, "the compute backend 'scalar' has exact products alone"):
            self.running(*flags, "--fast-matmul", "on", "--backend", "scalar").__enter__()
        with running(self.emulated, *flags, "--backend", "cuda-emulated", "--fast-matmul", "on") as daemon:
            fast = daemon.json(*request, "--fidelity", "fast-matmul")
            self.assertGreaterEqual(fast["stats"]["fast_matmul_tokens"], 32)
            after = daemon.json(*request)  # takes nothing of what the other left in the prefix cache
            self.assertEqual((after["token_ids"], after["logprobs"]), (exact["token_ids"], exact["logprobs"]))
            self.assertEqual(after["stats"]["fast_matmul_tokens"], 0)
            self.assertNotEqual(fast["logprobs"], exact["logprobs"])


if __name__ == "__main__":
    main()
