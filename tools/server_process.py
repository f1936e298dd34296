"""A server as a child process: its log, what the kernel counts of it, its end."""

import contextlib
import os
import re
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

ANSWER_SECONDS = 180
POLL_SECONDS = 0.005
LOG_SECONDS = 10  # for the rest of the log of a process that has ended; its children may still hold the pipe
KILL_SECONDS = 60

T = TypeVar("T")


class ServerError(Exception):
    """A server did not start, ended too early or gave no answer in time; the text has the end of its log."""


def wait_until(condition: Callable[[], T | None], what: str, seconds: float) -> T:
    """What the condition gives as soon as that is true; ServerError when it is not by the deadline."""
    end = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise ServerError(f"gave up waiting for {what} after {seconds:.0f} seconds")
        time.sleep(POLL_SECONDS)


def free_ports(count: int) -> list[int]:
    """Ports of 127.0.0.1, all different, for a program that cannot choose them itself."""
    with contextlib.ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [int(each.getsockname()[1]) for each in sockets]


def free_port() -> int:
    return free_ports(1)[0]


class ServerProcess:
    """Output and errors are one log, collected by a thread. close() has to be called, whatever happens."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str] | None = None):
        self.started = time.monotonic()
        self._lines: list[str] = []
        self._child = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", env=environment
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._child.stdout is not None
        for line in self._child.stdout:
            self._lines.append(line.rstrip("\n"))

    @property
    def pid(self) -> int:
        return self._child.pid

    def log(self) -> str:
        return "\n".join(self._lines)

    def find(self, pattern: str) -> str | None:
        """First group of the pattern in the log, None while it is not there."""
        match = re.search(pattern, self.log())
        return match.group(1) if match else None

    def wait_for(self, condition: Callable[[], T | None], what: str) -> T:
        """Like wait_until; ServerError also when the server ends meanwhile."""

        def condition_of_the_living() -> T | None:
            value = condition()
            if not value:
                self.check()
            return value

        try:
            return wait_until(condition_of_the_living, what, ANSWER_SECONDS)
        except ServerError as error:
            raise ServerError(f"{error}: {self._log_end()}") from None

    def wait_for_line(self, pattern: str) -> str:
        return self.wait_for(lambda: self.find(pattern), repr(pattern))

    def running(self) -> bool:
        return self._child.poll() is None

    def check(self) -> None:
        """ServerError unless it runs."""
        code = self._child.poll()
        if code is None:
            return
        self._reader.join(timeout=LOG_SECONDS)
        how = f"killed by signal {-code}" if code < 0 else f"ended with status {code}"
        reason = " (out of memory in its group?)" if code == -signal.SIGKILL else ""
        raise ServerError(f"{how}{reason}: {self._log_end()}")

    def _log_end(self) -> str:
        return " | ".join(self._lines[-4:])

    def _counted(self, file_name: str, field: str) -> int:
        with open(f"/proc/{self.pid}/{file_name}") as file:
            match = re.search(rf"^{field}:\s+(\d+)", file.read(), re.M)
        assert match, f"/proc/PID/{file_name} has no {field}"
        return int(match.group(1))

    def memory_bytes(self, field: str) -> int:
        """A field of /proc/PID/status that is counted in kB."""
        return self._counted("status", field) * 1024

    def read_bytes(self) -> int:
        """Bytes that it has read from disks, its page faults included."""
        return self._counted("io", "read_bytes")

    def processor_seconds(self) -> float:
        """Of all its threads since it started."""
        with open(f"/proc/{self.pid}/stat") as file:
            fields = file.read().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def send_signal(self, number: signal.Signals) -> None:
        self._child.send_signal(number)

    def wait(self, seconds: float) -> int:
        """Its exit status once it has ended; the log is whole then."""
        code = self._child.wait(timeout=seconds)
        self._reader.join(timeout=LOG_SECONDS)
        return code

    def stop(self, seconds: float = 60) -> int:
        """Asks for the end; kills what has not ended by then. Its exit status, below zero when a signal ended it."""
        self._child.terminate()
        try:
            return self.wait(seconds)
        except subprocess.TimeoutExpired:
            self._child.kill()
            return self.wait(KILL_SECONDS)

    def close(self) -> None:
        """Kills it if it still runs, and lets go of the log."""
        if self._child.poll() is None:
            self._child.kill()
        self.wait(KILL_SECONDS)
        assert self._child.stdout is not None
        self._child.stdout.close()
