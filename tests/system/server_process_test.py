"""tools/server_process.py: the log, the deadlines and the end of a child process."""

import signal
import unittest

from tools.server_process import ServerError, ServerProcess, wait_until


class ServerProcessTest(unittest.TestCase):
    def started(self, script: str) -> ServerProcess:
        process = ServerProcess(["/bin/sh", "-c", script])
        self.addCleanup(process.close)
        return process

    def test_a_line_is_waited_for_and_what_it_says_is_found(self) -> None:
        process = self.started("echo listening on port 17; echo warm >&2; exec sleep 60")
        self.assertEqual(process.wait_for_line(r"port (\d+)"), "17")
        process.wait_for(lambda: "warm" in process.log(), "what it writes as an error")
        self.assertIsNone(process.find(r"port (x+)"))
        self.assertGreater(process.memory_bytes("VmRSS"), 0)
        self.assertEqual(process.stop(), -signal.SIGTERM)

    def test_an_end_while_it_is_waited_for_is_told_with_the_log(self) -> None:
        with self.assertRaisesRegex(ServerError, "ended with status 3: no such store"):
            self.started("echo no such store; exit 3").wait_for_line("(never)")
        with self.assertRaisesRegex(ServerError, "killed by signal 9"):
            self.started("kill -9 $$").wait_for_line("(never)")

    def test_who_does_not_end_is_killed(self) -> None:
        process = self.started("trap '' TERM; echo deaf; while :; do sleep 0.01; done")
        process.wait_for_line("(deaf)")
        self.assertEqual(process.stop(seconds=0.1), -signal.SIGKILL)

    def test_a_deadline_names_what_did_not_come(self) -> None:
        with self.assertRaisesRegex(ServerError, "gave up waiting for rain after 0 seconds"):
            wait_until(lambda: False, "rain", 0.02)


if __name__ == "__main__":
    unittest.main()
