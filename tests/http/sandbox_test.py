"""What the sandbox leaves to moed-http and to the daemon behind it: addresses of both families."""

import contextlib
import re
import socket
import unittest

from tests.http.front import Front
from tests.real_programs import RealProgramsTest, main
from tools.daemon import pack_demo
from tools.server_process import ServerProcess

MODEL = "q8-q8"  # as pack_demo calls the store


def has_ipv6() -> bool:
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET6) as any_socket:
        any_socket.bind(("::1", 0))
        return True
    return False


class SandboxTest(RealProgramsTest):
    @unittest.skipUnless(has_ipv6(), "this machine has no IPv6")
    def test_the_daemon_is_reached_over_ipv6(self) -> None:
        store = pack_demo(self.binaries, self.folder, "q8", "q8")
        flags = ("--store", str(store), "--memory-budget", "64MiB", "--metrics-listen", "off")
        daemon = ServerProcess([str(self.binaries / "moed"), "--listen", "[::1]:0", "--sandbox", "on", *flags])
        with contextlib.closing(daemon):
            address = daemon.wait_for_line(r"listening on (\[::1\]:\d+)")
            front = Front(self.binaries, address, "--sandbox", "on")
            with contextlib.closing(front):
                front.wait_until_ready()
                status, answer = front.post("/v1/completions", {"model": MODEL, "prompt": "Once", "max_tokens": 2})
                self.assertEqual(status, 200, answer)
                self.assertTrue(re.search("sandbox: files and ports", front.log()))


if __name__ == "__main__":
    main()
