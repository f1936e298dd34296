"""Bytes, rate and time left: one line that is rewritten on a terminal, a line every few seconds elsewhere."""

import time
from typing import TextIO

TERMINAL_SECONDS = 0.1
PLAIN_SECONDS = 5.0


def bytes_text(count: float) -> str:
    for unit in ("B", "KB", "MB"):
        if count < 1000:
            return f"{count:.0f} {unit}"
        count /= 1000
    return f"{count:.2f} GB"


class Progress:
    def __init__(self, verb: str, total_bytes: int, out: TextIO):
        self.verb, self.total_bytes, self.out = verb, total_bytes, out
        self.terminal = out.isatty()
        self.begin = self.last = time.monotonic()
        self.done_bytes = 0

    def add(self, count: int) -> None:
        self.done_bytes += count
        now = time.monotonic()
        if now - self.last < (TERMINAL_SECONDS if self.terminal else PLAIN_SECONDS):
            return
        self.last = now
        rate = self.done_bytes / (now - self.begin)
        line = (
            f"{self.verb} {bytes_text(self.done_bytes)} of {bytes_text(self.total_bytes)} "
            f"({self.done_bytes * 100 // self.total_bytes} %), {bytes_text(rate)}/s, "
            f"{(self.total_bytes - self.done_bytes) / rate:.0f} s left"
        )
        print(f"\r{line}\x1b[K" if self.terminal else line, end="" if self.terminal else "\n", file=self.out, flush=True)

    def finish(self) -> None:
        seconds = max(time.monotonic() - self.begin, 1e-9)
        clear = "\r\x1b[K" if self.terminal else ""
        print(
            f"{clear}{self.verb} {bytes_text(self.done_bytes)} in {seconds:.1f} s ({bytes_text(self.done_bytes / seconds)}/s)",
            file=self.out,
            flush=True,
        )
