"""Models whose prompt is computed whole through the real programs: packed, served, answered as transformers does in more than one
budget; and what such a model has none of is refused by name."""

import json
import lzma
import pathlib
import shutil
from typing import Any, ClassVar

from tests.real_programs import RealProgramsTest, main
from tools.daemon import ROOT, Daemon, pack

DATA = ROOT / "tests" / "model" / "data"


class WholePrompt(RealProgramsTest):
    NAME: ClassVar[str]
    store: ClassVar[pathlib.Path]
    golden: ClassVar[dict[str, Any]]

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        checkpoint = cls.folder / cls.NAME
        shutil.copytree(DATA / cls.NAME, checkpoint)
        packed = checkpoint / "model.safetensors.xz"
        (checkpoint / "model.safetensors").write_bytes(lzma.decompress(packed.read_bytes()))
        cls.golden = json.loads(lzma.decompress((checkpoint / "golden.json.xz").read_bytes()))
        flags = ("--expert-formats", "bf16", "--trunk-format", "bf16")
        cls.store = pack(cls.binaries, checkpoint, cls.folder / f"{cls.NAME}.moed", *flags)

    def expect_scored(self, daemon: Daemon) -> None:
        ids = {name: ",".join(map(str, self.golden[name])) for name in ("prompt", "target")}
        scored = daemon.json("score", "--source-token-ids", ids["prompt"], "--token-ids", ids["target"])
        self.assertEqual(scored["token_ids"], self.golden["target"])
        self.assertEqual(scored["source_tokens"], len(self.golden["prompt"]))
        self.assertEqual(scored["choices_dropped"], self.golden["dropped"])
        for logprob, expected in zip(scored["logprobs"], self.golden["target_logprobs"], strict=True):
            self.assertAlmostEqual(logprob, expected, delta=1e-5 * self.golden["logits_std"])

    def greedy(self, count: int) -> tuple[object, ...]:
        source = ",".join(map(str, self.golden["prompt"]))
        return ("generate", "--token-ids", source, "--max-new-tokens", count, "--temperature", 0, "--ignore-eos")


class EncoderDecoder(WholePrompt):
    NAME = "switch_transformers"

    def test_answers_are_those_of_transformers_in_every_budget(self) -> None:
        for flags in (
            ("--memory-budget", "3MiB", "--kv-format", "f32", "--max-running", 1, "--prefill-chunk", 41),
            ("--memory-budget", "64MiB", "--kv-format", "f32", "--preset", "load-on-demand-lru"),
        ):
            with self.running("--store", self.store, *flags) as daemon:
                answer = daemon.json(*self.greedy(64))
                self.assertEqual(answer["token_ids"], self.golden["greedy"], flags)
                self.assertEqual(answer["usage"]["prompt_tokens"], len(self.golden["prompt"]))
                self.assertEqual(answer["usage"]["cached_tokens"], 0)
                self.assertEqual(answer["stats"]["choices_dropped"], self.golden["dropped"])
                again = daemon.json(*self.greedy(64))
                self.assertEqual(again["token_ids"], self.golden["greedy"])
                self.assertEqual(again["usage"]["cached_tokens"], len(self.golden["prompt"]))
                self.assertEqual(again["stats"]["choices_dropped"], self.golden["dropped"])
                self.expect_scored(daemon)
                self.assertEqual(daemon.stop(), 0, daemon.log())

    def test_what_it_has_none_of_is_refused_by_name(self) -> None:
        with self.running("--store", self.store, "--memory-budget", "64MiB", "--prefill-chunk", 40) as daemon:
            for arguments, reason in (
                ((*self.greedy(4), "--session", "s"), "session_id: the model is an encoder-decoder"),
                (("score", "--text", "a text"), "target: missing, at least one token is needed: the model is an encoder-decoder"),
                (
                    self.greedy(4),
                    "41 tokens are too many: an encoder takes all of a source in one step, here of at most 40 tokens",
                ),
                (("chat", "--prompt", "Hello"), "the model is an encoder-decoder, which has no conversations: use Generate"),
            ):
                refused = daemon.moectl(*arguments, check=False)
                self.assertNotEqual(refused.returncode, 0, arguments)
                self.assertIn(reason, refused.stderr)


class PrefixLm(WholePrompt):
    NAME = "gptsan_japanese"

    def test_answers_are_those_of_transformers_and_what_it_has_none_of_is_refused(self) -> None:
        flags = ("--memory-budget", "64MiB", "--kv-format", "f32", "--preset", "load-on-demand-lru", "--prefill-chunk", 48)
        with self.running("--store", self.store, *flags) as daemon:
            answer = daemon.json(*self.greedy(64))
            self.assertEqual(answer["token_ids"], self.golden["greedy"])
            self.assertEqual(answer["stats"]["choices_dropped"], self.golden["dropped"])
            # A text is a prefix as a whole: a begin and a separator stand around it.
            text = daemon.json("generate", "--prompt", "日本の猫", "--max-new-tokens", 4, "--temperature", 0, "--ignore-eos")
            begin, separator = 269, 274
            tokens = ",".join(map(str, (begin, 3, 0, 4, separator)))
            same = daemon.json("generate", "--token-ids", tokens, "--max-new-tokens", 4, "--temperature", 0, "--ignore-eos")
            self.assertEqual(text["token_ids"], same["token_ids"])
            self.assertEqual(text["usage"]["prompt_tokens"], 5)
            self.expect_scored(daemon)
            text = daemon.json("score", "--source", "日本の猫", "--text", "猫は")
            same = daemon.json("score", "--source-token-ids", tokens, "--token-ids", "4,1")
            self.assertEqual(text["logprobs"], same["logprobs"])
            self.assertEqual(text["token_ids"], [4, 1])
            for arguments, reason in (
                ((*self.greedy(4), "--session", "s"), "session_id: the model is a prefix-LM"),
                (("score", "--text", "日本の猫"), "target: missing, at least one token is needed: the model is a prefix-LM"),
                (("chat", "--prompt", "Hello"), "the model is a prefix-LM, which has no conversations: use Generate"),
                (
                    ("generate", "--token-ids", ",".join(["3"] * 48), "--max-new-tokens", 1),
                    "48 tokens are too many: a prefix-LM takes all of a prompt in one step",
                ),
            ):
                refused = daemon.moectl(*arguments, check=False)
                self.assertNotEqual(refused.returncode, 0, arguments)
                self.assertIn(reason, refused.stderr)


if __name__ == "__main__":
    main()
