"""The whole daemon over the CUDA kernels in emulation: it streams the processor's tokens, with the same logprobs."""

import pathlib
from typing import Any

from tests.real_programs import RealProgramsTest, main
from tools.daemon import Daemon, pack_demo

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


if __name__ == "__main__":
    main()
