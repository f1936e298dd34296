"""docs/metrics.md is what a daemon serves."""

from tests.real_programs import RealProgramsTest, main, metrics_of
from tests.tokens import write_tokens
from tools.daemon import ROOT, pack_demo
from tools.metrics_page import families, page

TOKEN = "0123456789abcdef" * 3


class MetricsPageTest(RealProgramsTest):
    def test_it_is_what_a_daemon_serves(self) -> None:
        store = pack_demo(self.binaries, self.folder, "q8", "q8")
        tokens = write_tokens(self.folder / "tokens", ("asker", "infer,observe,control", TOKEN))
        flags = ("--store", store, "--memory-budget", "64MiB", "--tokens", tokens)
        (self.folder / "token").write_text(TOKEN)
        with self.running(*flags, client=("--token-file", self.folder / "token")) as daemon:
            daemon.moectl("generate", "--prompt", "Once upon a time", "--max-new-tokens", 8, "--ignore-eos")
            served = metrics_of(daemon)
        self.assertEqual((ROOT / "docs" / "metrics.md").read_text(), page(served), "tools/metrics_page.py writes it anew")
        for name, family in families(served).items():
            self.assertTrue(family.type and family.help, name)


if __name__ == "__main__":
    main()
