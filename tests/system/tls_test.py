"""TLS on the daemon's addresses over real sockets: who comes in, what a renewed file changes, what is said of a wrong one."""

import contextlib
import os
import pathlib
import shutil
import signal
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from typing import ClassVar

from tests.authority import Authority, Pair, end_seconds, speaks
from tests.real_programs import RealProgramsTest, main
from tests.system.daemon_rig import metric
from tools.daemon import ROOT, Daemon, pack_demo
from tools.server_process import wait_until

EXIT_UNAVAILABLE = 3
BUDGET = ("--memory-budget", "64MiB")
# Scalar kernels make the demo model slow: a long answer takes seconds, whatever the machine.
SLOW = (*BUDGET, "--backend", "scalar", "--threads", 1)
ONE_ANSWER = ("generate", "--prompt", "Once upon a time", "--max-new-tokens", 2, "--ignore-eos")
IMPATIENT = ("--connect-timeout", 1)  # where nobody is to come in
WAIT_SECONDS = 300
END = "moe_tls_certificate_end_seconds"


def served_serial(address: str) -> str:
    """Of the certificate that a new connection is shown."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    host, port = address.rsplit(":", 1)
    with socket.create_connection((host, int(port)), timeout=60) as plain, context.wrap_socket(plain) as encrypted:
        certificate = encrypted.getpeercert(binary_form=True)
        assert certificate
    text = subprocess.run(
        ["openssl", "x509", "-inform", "der", "-noout", "-serial"], input=certificate, capture_output=True, check=True
    ).stdout
    return text.decode().strip().partition("=")[2]


class TlsTest(RealProgramsTest):
    store: ClassVar[pathlib.Path]
    ours: ClassVar[Authority]
    theirs: ClassVar[Authority]
    server: ClassVar[Pair]
    client: ClassVar[Pair]
    stranger: ClassVar[Pair]
    renewed: ClassVar[Pair]
    expired: ClassVar[Pair]

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        cls.store = pack_demo(cls.binaries, cls.folder, "q8", "q8")
        cls.ours = Authority(cls.folder, "ours")
        cls.theirs = Authority(cls.folder, "theirs")
        cls.server, cls.client = (cls.ours.issue(name) for name in ("server", "client"))
        cls.renewed = cls.ours.issue("renewed", days=1)
        cls.expired = cls.ours.issue("expired", days=-1)
        cls.stranger = cls.theirs.issue("stranger")

    @contextlib.contextmanager
    def serving(self, *flags: object, client: tuple[object, ...] = ()) -> Iterator[tuple[Daemon, Pair]]:
        """A daemon, and the files of its certificate, which are its own."""
        files = Pair(self.folder / "live.pem", self.folder / "live.key")
        self.put(self.server, files)
        tls = ("--tls-cert", files.certificate, "--tls-key", files.key)
        ca = ("--tls-ca", self.ours.certificate)
        with self.running("--store", self.store, *tls, *flags, client=(*ca, *client)) as daemon:
            yield daemon, files

    def put(self, pair: Pair, files: Pair) -> None:
        shutil.copy(pair.certificate, files.certificate)
        shutil.copy(pair.key, files.key)

    def moectl(self, daemon: Daemon, *arguments: object) -> subprocess.CompletedProcess[str]:
        """With no flags but these."""
        return self.run_program("moectl", "--server", daemon.address, *arguments)

    def hang_up(self, daemon: Daemon, said: str) -> None:
        """SIGHUP, until the log has one more line of what came of it."""
        before = daemon.log().count(said)
        daemon.send_signal(signal.SIGHUP)
        wait_until(lambda: daemon.log().count(said) > before, f"the log to say '{said}'", WAIT_SECONDS)

    # Who comes in

    def test_clients_that_know_the_authority_come_in_and_no_others(self) -> None:
        with self.serving(*BUDGET) as (daemon, _):
            self.assertIn(f"listening on {daemon.address} (TLS)", daemon.log())
            self.assertEqual(daemon.moectl(*ONE_ANSWER).returncode, 0)
            by_name = ("--tls-ca", self.ours.certificate, "--tls-name", "localhost")
            self.assertEqual(self.moectl(daemon, *by_name, "health").returncode, 0)
            for what, flags in (
                ("plain text", ()),
                ("another authority", ("--tls-ca", self.theirs.certificate)),
                ("this machine's authorities", ("--tls-ca", "system")),
                ("another name", ("--tls-ca", self.ours.certificate, "--tls-name", "example.org")),
            ):
                refused = self.moectl(daemon, *IMPATIENT, *flags, "health")
                self.assertEqual(refused.returncode, EXIT_UNAVAILABLE, (what, refused.stderr))
                self.assertRegex(refused.stderr, r"^moectl: no server answers at [^\n]*\n$", what)

    def test_where_clients_need_a_certificate_they_are_asked_for_it(self) -> None:
        own = ("--tls-cert", self.client.certificate, "--tls-key", self.client.key)
        with self.serving(*BUDGET, "--tls-client-ca", self.ours.certificate, client=own) as (daemon, _):
            self.assertEqual(daemon.moectl(*ONE_ANSWER).returncode, 0)
            ca = ("--tls-ca", self.ours.certificate)
            foreign = ("--tls-cert", self.stranger.certificate, "--tls-key", self.stranger.key)
            for what, flags in (("none", ca), ("a stranger's", (*ca, *foreign))):
                refused = self.moectl(daemon, *IMPATIENT, *flags, "health")
                self.assertEqual(refused.returncode, EXIT_UNAVAILABLE, (what, refused.stderr))

    def test_failed_handshakes_are_lines_of_the_log_as_others_are(self) -> None:
        with self.serving(*BUDGET) as (daemon, _):
            host, port = daemon.address.rsplit(":", 1)
            with socket.create_connection((host, int(port)), timeout=60) as stranger:
                stranger.sendall(b"GET / HTTP/1.1\r\n\r\n" + bytes(100))
                with contextlib.suppress(ConnectionResetError):
                    while stranger.recv(4096):
                        pass
            wait_until(lambda: " warning gRPC: Handshake failed" in daemon.log(), "the line", WAIT_SECONDS)
            self.assertNotIn("ssl_transport_security.cc", daemon.log())

    def test_nothing_older_than_tls_1_2_is_spoken(self) -> None:
        with self.serving(*BUDGET) as (daemon, _):
            spoken = {version for version in ("tls1_1", "tls1_2", "tls1_3") if speaks(daemon.address, version)}
            self.assertEqual(spoken, {"tls1_2", "tls1_3"})

    def test_a_unix_socket_stays_plain_and_control_on_an_address_of_its_own_does_not(self) -> None:
        path = f"unix:{self.folder}/control"
        with self.serving(*BUDGET, "--control-listen", path) as (daemon, _):
            self.assertEqual(self.run_program("moectl", "--server", path, "info").returncode, 0)
        with self.serving(*BUDGET, "--control-listen", "127.0.0.1:0") as (daemon, _):
            control = daemon.find(r"control on (127\.0\.0\.1:\d+) \(TLS\)")
            assert control, daemon.log()
            self.assertEqual(served_serial(control), self.server.serial())

    def test_the_python_client_speaks_tls(self) -> None:
        stubs = self.generate_stubs()
        own = ("--tls-cert", self.client.certificate, "--tls-key", self.client.key)
        with self.serving(*BUDGET, "--tls-client-ca", self.ours.certificate, client=own) as (daemon, _):
            command = [
                sys.executable,
                "-B",
                str(ROOT / "client/python/stream.py"),
                "Once upon a time",
                "--server",
                daemon.address,
            ]
            command += ["--max-new-tokens", "3", "--tls-ca", str(self.ours.certificate), *map(str, own)]
            run = subprocess.run(
                command, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(stubs)}, timeout=120
            )
            self.assertEqual(run.returncode, 0, run.stderr)
            self.assertIn("tokens, TTFT", run.stderr)

    # Files that are read anew

    def test_a_hangup_takes_a_renewed_pair_and_running_streams_go_on(self) -> None:
        with self.serving(*SLOW) as (daemon, files):
            self.assertEqual(served_serial(daemon.address), self.server.serial())
            command = [self.binaries / "moectl", "--server", daemon.address, "--tls-ca", self.ours.certificate]
            command += ["generate", "--prompt", "Once", "--max-new-tokens", "1000", "--ignore-eos", "--json"]
            with subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, text=True) as stream:
                wait_until(lambda: daemon.json("stats")["stats"]["running"] == 1, "the stream", WAIT_SECONDS)
                self.put(self.renewed, files)
                self.hang_up(daemon, "certificates read anew")
                self.assertEqual(served_serial(daemon.address), self.renewed.serial())
                self.assertEqual(daemon.json("stats")["stats"]["running"], 1, "all of that was during the stream")
                answer, _ = stream.communicate(timeout=WAIT_SECONDS)
            self.assertEqual(stream.returncode, 0)
            self.assertIn('"completion_tokens":1000', answer.replace(" ", ""))
            self.assertEqual(daemon.stop(), 0, daemon.log())

    def test_files_that_are_wrong_change_nothing(self) -> None:
        with self.serving(*BUDGET) as (daemon, files):
            whole = self.renewed.certificate.read_text()
            for what, certificate, key, said in (
                ("half-written", whole[: len(whole) // 2], self.renewed.key.read_text(), "ends within|holds no certificate"),
                ("empty", "", self.renewed.key.read_text(), "holds no certificate"),
                ("a new certificate, not yet its key", whole, self.server.key.read_text(), "is not that of the certificate"),
                ("expired", self.expired.certificate.read_text(), self.expired.key.read_text(), "expired on"),
            ):
                with self.subTest(what):
                    files.certificate.write_text(certificate)
                    files.key.write_text(key)
                    self.hang_up(daemon, "certificates not read anew, those from before go on")
                    self.assertRegex(daemon.log().splitlines()[-1], said)
                    self.assertEqual(served_serial(daemon.address), self.server.serial())
                    self.assertEqual(daemon.moectl("health").returncode, 0)
            self.assertEqual(metric(daemon, END), end_seconds(self.server.certificate))
            self.put(self.renewed, files)
            self.hang_up(daemon, "certificates read anew")
            self.assertEqual(served_serial(daemon.address), self.renewed.serial())
            self.assertEqual(metric(daemon, END), end_seconds(self.renewed.certificate))

    def test_the_first_authority_of_clients_that_ends_counts(self) -> None:
        short = Authority(self.folder, "short", days=1)
        authorities = self.folder / "authorities.pem"
        authorities.write_text(self.theirs.certificate.read_text() + short.certificate.read_text())
        own = ("--tls-cert", self.stranger.certificate, "--tls-key", self.stranger.key)
        with self.serving(*BUDGET, "--tls-client-ca", authorities, client=own) as (daemon, _):
            self.assertEqual(metric(daemon, END), end_seconds(short.certificate))

    def test_without_tls_a_hangup_changes_nothing(self) -> None:
        with self.running("--store", self.store, *BUDGET) as daemon:
            self.hang_up(daemon, "nothing to read anew")
            self.assertEqual(daemon.moectl(*ONE_ANSWER).returncode, 0)
            self.assertEqual(daemon.stop(), 0, daemon.log())

    # Files that are wrong at the start

    def test_a_wrong_file_is_named_with_the_remedy(self) -> None:
        text = self.folder / "text"
        text.write_text("no certificate\n")
        locked = self.folder / "locked.key"
        subprocess.run(["openssl", "pkey", "-in", self.server.key, "-aes256", "-passout", "pass:x", "-out", locked], check=True)
        certificate, key, absent = self.server.certificate, self.server.key, self.folder / "absent"
        for flags, said in (
            (("--tls-cert", certificate), ("--tls-key is missing",)),
            (("--tls-key", key), ("--tls-cert is missing",)),
            (("--tls-client-ca", certificate), ("--tls-cert and --tls-key",)),
            (("--tls-cert", absent, "--tls-key", key), ("--tls-cert", str(absent), "No such file")),
            (("--tls-cert", certificate, "--tls-key", absent), ("--tls-key", str(absent), "No such file")),
            (("--tls-cert", text, "--tls-key", key), ("--tls-cert", str(text), "PEM is wanted")),
            (("--tls-cert", certificate, "--tls-key", text), ("--tls-key", str(text), "PEM is wanted")),
            (("--tls-cert", certificate, "--tls-key", locked), ("--tls-key", str(locked), "without a password")),
            (("--tls-cert", certificate, "--tls-key", self.client.key), (str(self.client.key), "made together")),
            (
                ("--tls-cert", self.expired.certificate, "--tls-key", self.expired.key),
                ("--tls-cert", str(self.expired.certificate), "expired on", "renewed"),
            ),
            (
                ("--tls-cert", certificate, "--tls-key", key, "--tls-client-ca", self.expired.certificate),
                ("--tls-client-ca", str(self.expired.certificate), "expired on"),
            ),
        ):
            with self.subTest(flags):
                run = self.run_program("moed", "--store", self.store, "--listen", "127.0.0.1:0", *flags)
                self.assertIn(run.returncode, (1, 2))
                for part in said:
                    self.assertIn(part, run.stderr.splitlines()[-1])

    def test_moectl_names_what_is_wrong_with_its_own_files(self) -> None:
        (self.folder / "text").write_text("no PEM")
        for flags, said in (
            (("--tls-ca", self.folder / "absent"), "--tls-ca: cannot read"),
            (("--tls-ca", self.folder / "text"), "is no PEM file"),
            (("--tls-ca", self.store), "is longer than"),
            (("--tls-cert", self.client.certificate), "--tls-key is missing"),
            (("--tls-cert", self.client.certificate, "--tls-key", self.client.key), "--tls-ca is missing"),
            (("--tls-name", "localhost"), "--tls-ca is missing"),
        ):
            run = self.run_program("moectl", *flags, "health")
            self.assertEqual(run.returncode, 2, (flags, run.stderr))
            self.assertIn(said, run.stderr)


if __name__ == "__main__":
    main()
