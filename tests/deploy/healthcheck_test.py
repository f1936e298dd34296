"""The image's health check of moed-http; tests/system/run_command_test.py has the daemon's."""

import contextlib
import os
import signal
import subprocess

from tests.authority import Authority
from tests.real_programs import CALL_SECONDS, RealProgramsTest, main
from tools.daemon import ROOT
from tools.server_process import ServerProcess, free_port

NOBODY = "127.0.0.1:1"  # where no daemon is


class HealthCheck(RealProgramsTest):
    def healthy(self, process: int, **settings: str) -> bool:
        environment = {"PATH": f"{self.binaries}:{os.environ['PATH']}", "TMPDIR": str(self.folder), **settings}
        command = ["sh", str(ROOT / "deploy" / "healthcheck.sh"), str(process)]
        return subprocess.run(command, capture_output=True, timeout=CALL_SECONDS, env=environment).returncode == 0

    def front(self, *flags: object, **settings: str) -> contextlib.closing[ServerProcess]:
        command = [self.binaries / "moed-http", "--server", NOBODY, *flags]
        front = ServerProcess([*map(str, command)], {**os.environ, **settings})
        front.wait_for_line(r"(listening on http)")
        return contextlib.closing(front)

    def test_it_asks_where_moed_http_listens(self) -> None:
        for listen in (f"127.0.0.1:{free_port()}", f"0.0.0.0:{free_port()}", f"[::]:{free_port()}"):
            for flag in (["--listen", listen], [f"--listen={listen}"]):
                with self.subTest(flag), self.front("--insecure", *flag) as front:
                    self.assertTrue(self.healthy(front.pid))
        with self.front(MOED_HTTP_LISTEN=listen, MOED_HTTP_INSECURE="on") as front:
            self.assertTrue(self.healthy(front.pid, MOED_HTTP_LISTEN=listen))
            self.assertFalse(self.healthy(front.pid, MOED_HTTP_LISTEN=f"127.0.0.1:{free_port()}"), "nobody listens there")

    def test_an_init_may_stand_before_it(self) -> None:
        listen = f"127.0.0.1:{free_port()}"
        # Words as those of docker-init, in a process that waits until its input ends.
        words = ["sh", "-c", "read -r _", "/sbin/docker-init", "--", "/usr/bin/moed-http", "--listen", listen]
        with self.front("--listen", listen), subprocess.Popen(words, stdin=subprocess.PIPE) as init:
            self.assertTrue(self.healthy(init.pid))

    def test_one_that_stands_still_is_not_healthy(self) -> None:
        listen = f"127.0.0.1:{free_port()}"
        with self.front("--listen", listen) as front:
            front.send_signal(signal.SIGSTOP)
            self.assertFalse(self.healthy(front.pid))
            front.send_signal(signal.SIGCONT)
            self.assertTrue(self.healthy(front.pid))

    def test_with_tls_it_takes_a_connection(self) -> None:
        pair = Authority(self.folder, "ours").issue("server")
        listen = f"127.0.0.1:{free_port()}"
        with self.front("--listen", listen, "--tls-cert", pair.certificate, "--tls-key", pair.key) as front:
            self.assertTrue(self.healthy(front.pid))
        variables = {"MOED_HTTP_TLS_CERT": str(pair.certificate), "MOED_HTTP_TLS_KEY": str(pair.key), "MOED_HTTP_LISTEN": listen}
        with self.front(**variables) as front:
            self.assertTrue(self.healthy(front.pid, **variables))


if __name__ == "__main__":
    main()
