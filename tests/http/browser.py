"""Headless Chromium, driven by the DevTools protocol over a pair of pipes."""

import base64
import contextlib
import fcntl
import json
import os
import pathlib
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from typing import Any

PROGRAM = "chromium-headless-shell"
FLAGS = (
    "--remote-debugging-pipe",
    "--no-sandbox",  # which cannot be had as root
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--hide-scrollbars",
)
WAIT_SECONDS = 300  # for what comes in milliseconds where nothing else runs
END_SECONDS = 60
POLL_SECONDS = 0.02


class BrowserError(Exception):
    """A command failed, a script threw, or what was waited for did not come."""


def pipe() -> tuple[int, int]:
    """Beyond the descriptors that the browser takes."""
    ends = os.pipe()
    moved = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 16) for end in ends]
    for end in ends:
        os.close(end)
    return moved[0], moved[1]


class Browser:
    """One page. What it asked for over the network, and what it complained of, is collected."""

    def __init__(self, profile: pathlib.Path):
        ours_in, theirs_out = pipe()
        theirs_in, ours_out = pipe()
        # The pipes have to be the descriptors 3 and 4 of the browser.
        command = f'exec "$@" 3<&{theirs_in} 4>&{theirs_out}'
        self._child = subprocess.Popen(
            ["bash", "-c", command, "bash", PROGRAM, f"--user-data-dir={profile}", *FLAGS, "about:blank"],
            pass_fds=(theirs_in, theirs_out),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        os.close(theirs_in)
        os.close(theirs_out)
        self._in = os.fdopen(ours_in, "rb", buffering=0)
        self._out = os.fdopen(ours_out, "wb", buffering=0)
        self._unread = b""
        self._commands = 0
        self._session: str | None = None
        self.requests: list[str] = []
        self.complaints: list[str] = []
        target = next(each for each in self.command("Target.getTargets")["targetInfos"] if each["type"] == "page")
        self._session = self.command("Target.attachToTarget", targetId=target["targetId"], flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.command(f"{domain}.enable")

    def command(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._commands += 1
        message = {"id": self._commands, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        self._out.write(json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") != self._commands:
                self._collect(answer)
            elif "error" in answer:
                raise BrowserError(f"{method}: {answer['error']}")
            else:
                result: dict[str, Any] = answer["result"]
                return result

    def _receive(self) -> dict[str, Any]:
        while b"\0" not in self._unread:
            data = self._in.read(1 << 16)
            if not data:
                raise BrowserError("the browser has ended")
            self._unread += data
        message, _, self._unread = self._unread.partition(b"\0")
        decoded: dict[str, Any] = json.loads(message)
        return decoded

    def _collect(self, event: dict[str, Any]) -> None:
        parameters = event.get("params", {})
        match event.get("method"):
            case "Network.requestWillBeSent":
                self.requests.append(parameters["request"]["url"])
            case "Runtime.exceptionThrown":
                self.complaints.append(json.dumps(parameters["exceptionDetails"]))
            case "Runtime.consoleAPICalled" if parameters["type"] in ("error", "warning", "assert"):
                self.complaints.append(json.dumps(parameters["args"]))
            case "Log.entryAdded" if parameters["entry"]["level"] in ("error", "warning"):
                self.complaints.append(f"{parameters['entry']['text']} {parameters['entry'].get('url', '')}")

    def show(self, width: int, height: int, **media: str) -> None:
        """`media`: what the user prefers, as "prefers_color_scheme"."""
        self.command("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600)
        features = [{"name": name.replace("_", "-"), "value": value} for name, value in media.items()]
        self.command("Emulation.setEmulatedMedia", features=features)

    def open(self, url: str) -> None:
        self.command("Page.navigate", url=url)
        self.wait("document.readyState === 'complete'")

    def run(self, script: str) -> Any:
        """The value of an expression, which may await."""
        expression = f"(async () => ({script}))()"
        answer = self.command("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True, userGesture=True)
        if "exceptionDetails" in answer:
            raise BrowserError(f"{script}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def wait(self, script: str) -> None:
        """Until the expression is true."""
        end = time.monotonic() + WAIT_SECONDS
        while time.monotonic() < end:
            with contextlib.suppress(BrowserError):  # the page may be on its way
                if self.run(f"Boolean({script})"):
                    return
            time.sleep(POLL_SECONDS)
        raise BrowserError(f"not in {WAIT_SECONDS} seconds: {script}; the page says: {self.run('document.body.innerText')}")

    def type(self, selector: str, text: str) -> None:
        """As a keyboard would, in place of what is there."""
        element = f"document.querySelector({json.dumps(selector)})"
        self.run(f"{element}.focus(), {element}.select?.()")
        self.command("Input.insertText", text=text)
        self.run(f"{element}.dispatchEvent(new Event('change'))")

    def press(self, key: str) -> None:
        text = {"text": "\r"} if key == "Enter" else {}
        code = {"Enter": 13, "ArrowRight": 39, "ArrowDown": 40, "Tab": 9}[key]
        for kind in ("keyDown", "keyUp"):
            self.command("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code, **text)

    def click(self, selector: str) -> None:
        self.run(f"document.querySelector({json.dumps(selector)}).click()")

    def screenshot(self) -> bytes:
        return base64.b64decode(self.command("Page.captureScreenshot", format="png")["data"])

    def close(self) -> None:
        """By itself, so that none of its processes still writes to its profile; by force where that fails."""
        self._session = None
        with contextlib.suppress(BrowserError, OSError):
            self.command("Browser.close")
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._child.wait(END_SECONDS)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._child.pid, signal.SIGKILL)
        self._child.wait()
        self._in.close()
        self._out.close()


@contextlib.contextmanager
def browser(profile: pathlib.Path) -> Iterator[Browser]:
    running = Browser(profile)
    try:
        yield running
    finally:
        running.close()


def installed() -> bool:
    return shutil.which(PROGRAM) is not None
