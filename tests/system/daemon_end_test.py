"""How the real daemon ends: drains that are asked for, by a signal or a call, and what becomes of those that it serves."""

import signal
import urllib.error
import urllib.request

import grpc

from tests.real_programs import main
from tests.system.daemon_rig import PROMPT, SLOW, WAIT_SECONDS, DaemonTestCase, Stream, eventually, metric, stats
from tools.daemon import Daemon

EXIT_UNAVAILABLE = 3


def http_code(daemon: Daemon, path: str) -> int:
    try:
        with urllib.request.urlopen(f"http://{daemon.metrics_address}{path}", timeout=10) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


class DaemonEndTest(DaemonTestCase):
    def begin_end(self, daemon: Daemon) -> None:
        """Asks for the end and waits until the daemon says that it refuses what is new."""
        daemon.send_signal(signal.SIGTERM)
        eventually(lambda: "draining" in daemon.log(), "the drain")

    def test_a_drain_lets_what_runs_finish_and_takes_nothing_new(self) -> None:
        from moe.v1 import inference_pb2

        with self.serving(*SLOW, "--drain-seconds", 600) as daemon:
            stream = Stream(daemon, 600)
            stream.read()
            self.assertEqual(http_code(daemon, "/readyz"), 200)
            self.begin_end(daemon)
            refused = daemon.moectl("generate", "--prompt", PROMPT, check=False)
            self.assertEqual(refused.returncode, EXIT_UNAVAILABLE, refused.stderr)
            self.assertIn("draining", refused.stderr)
            self.assertEqual(daemon.moectl("health", check=False).returncode, EXIT_UNAVAILABLE)
            self.assertEqual(http_code(daemon, "/readyz"), 503)
            self.assertEqual(http_code(daemon, "/healthz"), 200)
            self.assertTrue(daemon.json("info")["server"]["draining"])
            self.assertEqual(metric(daemon, 'moe_requests_rejected_total{reason="draining"}'), 1)
            self.assertEqual(stats(daemon)["running"], 1, "all of that was during the stream")
            self.assertEqual(stream.read_all(), grpc.StatusCode.OK)
            self.assertEqual(stream.tokens, 600)
            self.assertEqual(stream.finish.reason, inference_pb2.FINISH_REASON_LENGTH)
            self.assertEqual(daemon.wait(WAIT_SECONDS), 0, daemon.log())

    def test_others_can_notice_before_anything_is_refused(self) -> None:
        with self.serving("--memory-budget", "64MiB", "--drain-delay-seconds", 3600) as daemon:
            daemon.send_signal(signal.SIGTERM)
            eventually(lambda: daemon.moectl("health", check=False).returncode == EXIT_UNAVAILABLE, "health to say no")
            self.assertEqual(http_code(daemon, "/readyz"), 503)
            self.assertEqual(http_code(daemon, "/healthz"), 200)
            self.assertTrue(daemon.json("info")["server"]["draining"])
            self.assertEqual(daemon.moectl("generate", "--prompt", PROMPT, "--max-new-tokens", 2).returncode, 0)
            self.assertNotIn("refused", daemon.log())
            daemon.send_signal(signal.SIGTERM)
            self.assertEqual(daemon.wait(WAIT_SECONDS), 128 + signal.SIGTERM, "a second signal does not wait")

    def test_after_the_delay_new_requests_are_refused(self) -> None:
        with self.serving(*SLOW, "--drain-delay-seconds", 1, "--drain-seconds", 600) as daemon:
            stream = Stream(daemon, 600)
            stream.read()
            daemon.send_signal(signal.SIGTERM)
            eventually(lambda: "new requests are refused" in daemon.log(), "the end of the delay")
            self.assertLess(daemon.log().index("not ready any more"), daemon.log().index("new requests are refused"))
            refused = daemon.moectl("generate", "--prompt", PROMPT, check=False)
            self.assertEqual(refused.returncode, EXIT_UNAVAILABLE, refused.stderr)
            stream.cancel()
            self.assertEqual(daemon.wait(WAIT_SECONDS), 0, daemon.log())

    def test_a_drain_that_is_asked_for_leaves_the_daemon_there(self) -> None:
        with self.serving("--memory-budget", "64MiB", "--drain-delay-seconds", 1) as daemon:
            self.assertIn("0 running", daemon.moectl("drain").stdout)
            self.assertEqual(daemon.moectl("health", check=False).returncode, EXIT_UNAVAILABLE)
            eventually(lambda: "new requests are refused" in daemon.log(), "the end of the delay")
            refused = daemon.moectl("generate", "--prompt", PROMPT, check=False)
            self.assertEqual(refused.returncode, EXIT_UNAVAILABLE, refused.stderr)
            self.assertEqual(daemon.stop(), 0, daemon.log())

    def test_a_drain_can_be_taken_back(self) -> None:
        with self.serving("--memory-budget", "64MiB", "--drain-delay-seconds", 0) as daemon:
            self.assertEqual(daemon.moectl("undrain").returncode, 0, "nothing to take back")
            for times in (1, 2):
                daemon.moectl("drain")
                eventually(lambda n=times: daemon.log().count("new requests are refused") == n, "the refusals")  # type: ignore[misc]
                refused = daemon.moectl("generate", "--prompt", PROMPT, check=False)
                self.assertEqual(refused.returncode, EXIT_UNAVAILABLE, refused.stderr)
                self.assertIn("again", daemon.moectl("undrain").stdout)
                self.assertEqual(daemon.moectl("health").returncode, 0)
                self.assertEqual(http_code(daemon, "/readyz"), 200)
                self.assertEqual(daemon.moectl("generate", "--prompt", PROMPT, "--max-new-tokens", 2).returncode, 0)
            self.assertEqual(daemon.stop(), 0, daemon.log())
        with self.serving("--memory-budget", "64MiB", "--drain-delay-seconds", 3600) as daemon:
            daemon.moectl("drain")
            eventually(lambda: "not ready any more" in daemon.log(), "the delay")
            daemon.moectl("undrain")
            self.assertEqual(daemon.moectl("health").returncode, 0)
            self.assertNotIn("refused", daemon.log())
            daemon.send_signal(signal.SIGTERM)
            eventually(lambda: daemon.moectl("health", check=False).returncode == EXIT_UNAVAILABLE, "health to say no")
            ending = daemon.moectl("undrain", check=False)
            self.assertIn("the server is ending", ending.stderr)

    def test_without_drain_time_running_streams_are_ended(self) -> None:
        with self.serving(*SLOW, "--drain-seconds", 0) as daemon:
            streams = [Stream(daemon, 1000) for _ in range(3)]
            for stream in streams:
                stream.read()
            self.begin_end(daemon)
            for stream in streams:
                self.assertEqual(stream.read_all(), grpc.StatusCode.UNAVAILABLE)
                self.assertLess(stream.tokens, 1000)
            self.assertEqual(daemon.wait(WAIT_SECONDS), 0, daemon.log())

    def test_a_hangup_ends_nothing(self) -> None:
        with self.serving(*SLOW, "--drain-seconds", 600) as daemon:
            stream = Stream(daemon, 100)
            stream.read()
            daemon.send_signal(signal.SIGHUP)
            eventually(lambda: "nothing to read anew" in daemon.log(), "the log to say so")
            self.assertEqual(daemon.moectl("health").returncode, 0)
            self.begin_end(daemon)
            daemon.send_signal(signal.SIGHUP)
            self.assertEqual(stream.read_all(), grpc.StatusCode.OK)
            self.assertEqual(daemon.wait(WAIT_SECONDS), 0, daemon.log())

    def test_a_second_signal_ends_at_once(self) -> None:
        for second in (signal.SIGTERM, signal.SIGINT):
            with self.subTest(second.name), self.serving(*SLOW) as daemon:
                stream = Stream(daemon, 1000)
                stream.read()
                self.begin_end(daemon)

                def ended_again(daemon: Daemon = daemon, second: signal.Signals = second) -> bool:
                    daemon.send_signal(second)
                    return "ending at once" in daemon.log()

                eventually(ended_again, "a second signal to count")
                self.assertEqual(daemon.wait(WAIT_SECONDS), 128 + second)
                self.assertEqual(stream.read_all(), grpc.StatusCode.UNAVAILABLE)


if __name__ == "__main__":
    main()
