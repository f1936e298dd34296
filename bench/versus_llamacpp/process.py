"""A server as a child process: its log, its reads, its end."""
import re
import signal
import subprocess
import threading
import time

START_SECONDS = 180


class ServerError(Exception):
    """The server did not start, or ended too early; the text has the end of its log."""


class Process:
    def __init__(self, command, group=None):
        self.started = time.monotonic()
        self._lines = []
        self._child = subprocess.Popen(group.command(command) if group else command, stdout=subprocess.PIPE,
                                       stderr=subprocess.STDOUT, text=True, errors="replace")
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self):
        for line in self._child.stdout:
            self._lines.append(line.rstrip("\n"))

    def wait_for(self, condition, what):
        while time.monotonic() < self.started + START_SECONDS:
            value = condition()
            if value:
                return value
            self.check()
            time.sleep(0.005)
        raise ServerError(f"gave up waiting for {what}: {self.log_end()}")

    def find(self, pattern):
        """First group of the pattern in the log, None while it is not there."""
        return next((match.group(1) for match in map(re.compile(pattern).search, list(self._lines)) if match), None)

    def check(self):
        code = self._child.poll()
        if code is not None:
            how = f"killed by signal {-code}" if code < 0 else f"ended with status {code}"
            raise ServerError(f"{how}{' (out of memory in its group?)' if code == -signal.SIGKILL else ''}: {self.log_end()}")

    def log_end(self):
        return " | ".join(self._lines[-4:])

    def read_bytes(self):
        """Bytes that it has read from disks, its page faults included."""
        with open(f"/proc/{self._child.pid}/io") as file:
            return int(re.search(r"^read_bytes: (\d+)", file.read(), re.M).group(1))

    def stop(self):
        if self._child.poll() is None:
            self._child.send_signal(signal.SIGTERM)
            try:
                self._child.wait(timeout=10)
            except subprocess.TimeoutExpired:
                self._child.kill()
                self._child.wait()
        self._reader.join(timeout=5)
        self._child.stdout.close()
