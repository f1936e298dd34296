"""Proxies that the environment names are for what is elsewhere: nobody asks them for a daemon of this machine."""

import os
from unittest import mock

from tests.http.front import front_of
from tests.real_programs import RealProgramsTest, main
from tools.daemon import pack_demo

NOBODY = {"http_proxy": "http://127.0.0.1:1", "https_proxy": "http://127.0.0.1:1", "no_proxy": ""}


class ProxyTest(RealProgramsTest):
    def test_programs_reach_the_daemon_itself(self) -> None:
        store = pack_demo(self.binaries, self.folder, "q8", "q8")
        with self.running("--store", store, "--memory-budget", "64MiB") as daemon, mock.patch.dict(os.environ, NOBODY):
            for address in (daemon.address, daemon.address.replace("127.0.0.1", "localhost")):
                health = self.run_program("moectl", "--server", address, "health")
                self.assertEqual(health.returncode, 0, health.stderr)
            with front_of(daemon) as front:
                status, answer = front.post("/v1/completions", {"model": "q8-q8", "prompt": "Once", "max_tokens": 2})
                self.assertEqual(status, 200, answer)


if __name__ == "__main__":
    main()
