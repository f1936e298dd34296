"""The wheel of the Python client: built, installed into a fresh virtual environment, and used against a real daemon."""

import os
import pathlib
import subprocess
import sys
from unittest import mock

from tests.real_programs import CALL_SECONDS, RealProgramsTest, main
from tools.daemon import ROOT, pack_demo


class WheelTest(RealProgramsTest):
    def run_command(self, *command: object, python: object = sys.executable) -> str:
        run = subprocess.run(
            list(map(str, command)),
            capture_output=True,
            text=True,
            timeout=CALL_SECONDS,
            env={**os.environ, "PYTHON": str(python)},
            cwd=self.folder,
        )
        self.assertEqual(run.returncode, 0, f"{run.stdout}{run.stderr}\n(packages come from PyPI)")
        return run.stdout

    def test_what_people_write_with_it(self) -> None:
        python = self.folder / "venv" / "bin" / "python"
        self.run_command(sys.executable, "-m", "venv", python.parents[1])
        self.run_command("bash", ROOT / "client" / "python" / "build_wheel.sh", self.folder / "wheels", python=python)
        (wheel,) = (self.folder / "wheels").glob("moed-*-none-any.whl")
        self.run_command(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", wheel)
        store = pack_demo(self.binaries, self.folder, "q4", "q8")
        with self.running("--store", store, "--memory-budget", "64MiB") as daemon:
            script = pathlib.Path(__file__).with_name("wheel_client.py")
            # A proxy is for what is elsewhere.
            with mock.patch.dict(os.environ, {"http_proxy": "http://127.0.0.1:1", "https_proxy": "http://127.0.0.1:1"}):
                self.assertEqual(self.run_command(python, script, daemon.address), "")


if __name__ == "__main__":
    main()
