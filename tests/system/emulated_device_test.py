"""The whole daemon over the CUDA kernels in emulation: it streams the processor's tokens, with the same logprobs."""

import pathlib
import re
from typing import Any

from tests.real_programs import RealProgramsTest, main, metrics_of
from tools.daemon import Daemon, pack_demo

USES = r'moe_expert_tier_uses_total\{tier="(\w+)",by="(\w+)"\} (\d+)'
PROMPT = "Once upon a time there was a little"


class EmulatedDevice(RealProgramsTest):
    def programs_with_emulation(self) -> pathlib.Path:
        """A folder with the daemon that has the backend, and the usual client."""
        folder = self.folder / "bin"
        folder.mkdir()
        (folder / "moed").symlink_to((self.binaries / ".." / "tests" / "moed_emulated").resolve())
        (folder / "moectl").symlink_to((self.binaries / "moectl").resolve())
        return folder

    def test_an_answer_is_that_of_the_processor(self) -> None:
        store = pack_demo(self.binaries, self.folder, "q4", "q8")

        def answer(daemon: Daemon) -> dict[str, Any]:
            flags = ("--max-new-tokens", 8, "--temperature", 0, "--ignore-eos", "--logprobs", 3)
            answer = daemon.json("generate", "--prompt", PROMPT, *flags)
            self.assertEqual(len(answer["token_ids"]), 8)
            return {name: answer[name] for name in ("text", "token_ids", "logprobs")}

        flags = ("--store", store, "--memory-budget", "14MiB", "--threads", 1)
        with self.running(*flags) as daemon:
            expected = answer(daemon)
        self.__class__.binaries = self.programs_with_emulation()
        with self.running(*flags, "--backend", "cuda-emulated") as daemon:
            self.assertEqual(answer(daemon), expected)
            self.assertEqual(daemon.stop(), 0, daemon.log())
        discrete = {"MOED_EMULATED_DEVICE": "discrete"}
        device_flags = ("--backend", "cuda-emulated", "--device-budget", "7MiB")
        with self.running(*flags, *device_flags, environment=discrete) as daemon:
            self.assertEqual(answer(daemon), expected)
            uses = {tuple(place): float(count) for *place, count in re.findall(USES, metrics_of(daemon))}
            self.assertGreater(uses["host", "processor"], 0, uses)  # what was never measured is tried
            self.assertGreater(uses["device", "device"], 0, uses)
            self.assertIn("experts come to the device at ", daemon.log())
            self.assertEqual(daemon.stop(), 0, daemon.log())
        with self.running(*flags, *device_flags, "--processor-experts", "off", environment=discrete) as daemon:
            self.assertEqual(answer(daemon), expected)
            self.assertRegex(metrics_of(daemon), r'moe_expert_tier_uses_total\{tier="host",by="processor"\} 0')


if __name__ == "__main__":
    main()
