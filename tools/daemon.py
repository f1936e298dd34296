"""moed as its users drive it: packed stores, a running daemon, answers of moectl."""

import contextlib
import json
import os
import pathlib
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tools.server_process import ServerError, ServerProcess

ROOT = pathlib.Path(__file__).resolve().parents[1]
DEMO_CHECKPOINT = ROOT / "models" / "tales-qwen"
DEFAULT_BINARIES = ROOT / "build" / "release" / "bin"
CALL_SECONDS = 600


class PackError(Exception):
    """moed-pack failed; the text is what it wrote."""


class Daemon(ServerProcess):
    """A running moed on ports of its own choice. `binaries` is the folder of moed and moectl, `client` are flags of moectl."""

    def __init__(
        self, binaries: pathlib.Path, *flags: object, environment: Mapping[str, str] | None = None, client: Sequence[object] = ()
    ):
        """Returns when it serves; ServerError with its log when it does not come to that."""
        self.binaries = binaries
        self.client = client
        command = [str(binaries / "moed"), "--listen", "127.0.0.1:0", "--metrics-listen", "127.0.0.1:0", *map(str, flags)]
        super().__init__(command, {"MOED_DRAIN_DELAY_SECONDS": "0", **os.environ, **(environment or {})})
        try:
            self.address = self.wait_for_line(r"listening on (127\.0\.0\.1:\d+)")
            self.metrics_address = self.wait_for_line(r"metrics on http://(127\.0\.0\.1:\d+)/metrics")
            self.wait_for(lambda: self.moectl("health", check=False).returncode == 0, "moed to serve")
        except ServerError as error:
            self.close()
            raise ServerError(f"{error}\n{self.log()}") from None

    def moectl(self, *arguments: object, check: bool = True) -> subprocess.CompletedProcess[str]:
        command = [str(self.binaries / "moectl"), "--server", self.address, *map(str, (*self.client, *arguments))]
        return subprocess.run(command, check=check, capture_output=True, text=True, timeout=CALL_SECONDS)

    def json(self, *arguments: object) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(self.moectl(*arguments, "--json").stdout)
        return answer

    def memory_parts(self) -> dict[str, int]:
        """Bytes that its plan gives to each part."""
        return {part["part"]: int(part["bytes"]) for part in self.json("info")["server"]["memory"]}


@contextlib.contextmanager
def running(
    binaries: pathlib.Path, *flags: object, environment: Mapping[str, str] | None = None, client: Sequence[object] = ()
) -> Iterator[Daemon]:
    """A daemon that is killed in the end if nobody has stopped it."""
    daemon = Daemon(binaries, *flags, environment=environment, client=client)
    try:
        yield daemon
    finally:
        daemon.close()


def pack(binaries: pathlib.Path, checkpoint: pathlib.Path, store: pathlib.Path, *flags: str) -> pathlib.Path:
    """The store, once moed-pack has written it."""
    run = subprocess.run([binaries / "moed-pack", checkpoint, store, *flags], capture_output=True, text=True)
    if run.returncode:
        raise PackError(f"moed-pack {store} ended with status {run.returncode}: {run.stderr.strip()}")
    return store


def pack_demo(binaries: pathlib.Path, folder: pathlib.Path, expert_format: str, trunk_format: str, *flags: str) -> pathlib.Path:
    """The demo model, packed into the folder."""
    store = folder / f"{expert_format}-{trunk_format}.moed".replace(":", "-")
    return pack(binaries, DEMO_CHECKPOINT, store, "--expert-formats", expert_format, "--trunk-format", trunk_format, *flags)
