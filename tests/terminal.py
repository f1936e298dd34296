"""A program on a terminal of its own, as people use it."""

import contextlib
import os
import pty
import select
import time
from collections.abc import Mapping

from tests.real_programs import CALL_SECONDS

CTRL_C, CTRL_D = b"\x03", b"\x04"


class Terminal:
    """close() has to be called, whatever happens."""

    def __init__(self, *command: object, environment: Mapping[str, str] | None = None):
        variables = {**os.environ, **(environment or {})}
        self.pid, self._terminal = pty.fork()
        if self.pid == 0:
            os.execve(str(command[0]), list(map(str, command)), variables)
        self._seen = ""

    def type(self, keys: bytes) -> None:
        os.write(self._terminal, keys)

    def wait_for(self, text: str) -> str:
        """All that it showed up to and with this."""
        end = time.monotonic() + CALL_SECONDS
        while text not in self._seen:
            if not select.select([self._terminal], [], [], max(0, end - time.monotonic()))[0]:
                raise AssertionError(f"no {text!r} in {self._seen!r}")
            try:
                self._seen += os.read(self._terminal, 1 << 16).decode(errors="replace")
            except OSError:  # the program has ended
                raise AssertionError(f"no {text!r} in {self._seen!r}") from None
        shown, self._seen = self._seen.split(text, 1)
        return shown + text

    def exit_code(self) -> int:
        with contextlib.suppress(OSError):  # the terminal is gone with the program
            while os.read(self._terminal, 1 << 16):
                pass
        _, status = os.waitpid(self.pid, 0)
        self.pid = 0
        return os.waitstatus_to_exitcode(status)

    def close(self) -> None:
        os.close(self._terminal)
        if self.pid:
            os.kill(self.pid, 9)
            os.waitpid(self.pid, 0)
