"""Starts the real programs for the tests of this folder."""
import argparse
import contextlib
import json
import os
import re
import signal
import subprocess
import threading
import time

START_SECONDS = 60


class Daemon:
    """A running moed; its log is collected, its addresses are read from it."""

    def __init__(self, binaries, *flags, environment=None):
        self.binaries = binaries
        self.lines = []
        self.process = subprocess.Popen(
            [os.path.join(binaries, "moed"), "--listen", "127.0.0.1:0", "--metrics-listen", "127.0.0.1:0", *map(str, flags)],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env={**os.environ, **(environment or {})})
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()
        self.address = self._find(r"listening on (127\.0\.0\.1:\d+)")
        self.metrics_address = self._find(r"metrics on http://(127\.0\.0\.1:\d+)/metrics")
        self._wait(lambda: self.moectl("health", check=False).returncode == 0, "moed to serve")

    def _read(self):
        for line in self.process.stdout:
            self.lines.append(line.rstrip("\n"))

    def log(self):
        return "\n".join(self.lines)

    def _wait(self, condition, what):
        end = time.monotonic() + START_SECONDS
        while time.monotonic() < end:
            value = condition()
            if value:
                return value
            assert self.process.poll() is None, f"moed ended while waiting for {what}:\n{self.log()}"
            time.sleep(0.05)
        raise AssertionError(f"gave up waiting for {what}:\n{self.log()}")

    def _find(self, pattern):
        return self._wait(lambda: next((m.group(1) for m in map(re.compile(pattern).search, list(self.lines)) if m), None), pattern)

    def moectl(self, *arguments, check=True, **options):
        return subprocess.run([os.path.join(self.binaries, "moectl"), "--server", self.address, *map(str, arguments)], check=check,
                              capture_output=True, text=True, timeout=600, **options)

    def json(self, *arguments):
        return json.loads(self.moectl(*arguments, "--json").stdout)

    def status(self, field):
        """Bytes of a kB field of /proc/PID/status."""
        with open(f"/proc/{self.process.pid}/status") as file:
            return int(re.search(rf"^{field}:\s+(\d+) kB", file.read(), re.M).group(1)) * 1024

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(timeout=60)
        self.reader.join(timeout=10)
        return code


def parse_options(description):
    """Where the programs and the project are; `rest` is for unittest."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--bin", required=True)
    parser.add_argument("--source", required=True)
    options, rest = parser.parse_known_args()
    options.rest = rest
    return options


@contextlib.contextmanager
def running(binaries, *flags, environment=None):
    daemon = Daemon(binaries, *flags, environment=environment)
    try:
        yield daemon
    finally:
        if daemon.process.poll() is None:
            daemon.process.kill()
            daemon.process.wait()
        daemon.reader.join(timeout=10)
        daemon.process.stdout.close()


def pack(binaries, checkpoint, store, *flags):
    subprocess.run([os.path.join(binaries, "moed-pack"), checkpoint, store, *flags], check=True, stdout=subprocess.DEVNULL)
    return store
