"""moed-http through TLS, towards its clients and towards its daemon."""

import contextlib
import json
import shutil
import signal
import socket
import ssl
from collections.abc import Iterator
from typing import Any, ClassVar

import grpc

from tests.authority import Authority, Pair, end_seconds, speaks
from tests.http.front import Front, front_of
from tests.real_programs import RealProgramsTest, main
from tools.daemon import Daemon, pack_demo, running
from tools.server_process import wait_until

WAIT_SECONDS = 300
COMPLETION = {"model": "q8-q8", "prompt": "Once upon a time", "max_tokens": 20, "temperature": 0, "ignore_eos": True}


def client_context(authority: Authority, pair: Pair | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=authority.certificate)
    if pair is not None:
        context.load_cert_chain(pair.certificate, pair.key)
    return context


class HttpTlsTest(RealProgramsTest):
    ours: ClassVar[Authority]
    theirs: ClassVar[Authority]
    server: ClassVar[Pair]
    client: ClassVar[Pair]
    renewed: ClassVar[Pair]
    stranger: ClassVar[Pair]
    daemon: ClassVar[Daemon]

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        store = pack_demo(cls.binaries, cls.folder, "q8", "q8")
        cls.ours, cls.theirs = (Authority(cls.folder, name) for name in ("ours", "theirs"))
        cls.server, cls.client = (cls.ours.issue(name) for name in ("server", "client"))
        cls.renewed = cls.ours.issue("renewed", days=1)
        cls.stranger = cls.theirs.issue("stranger")
        own = ("--tls-cert", cls.client.certificate, "--tls-key", cls.client.key)
        tls = ("--tls-cert", cls.server.certificate, "--tls-key", cls.server.key, "--tls-client-ca", cls.ours.certificate)
        flags = ("--store", store, "--memory-budget", "64MiB", *tls)
        cls.daemon = cls.enterClassContext(running(cls.binaries, *flags, client=("--tls-ca", cls.ours.certificate, *own)))

    @contextlib.contextmanager
    def front(self, *flags: object, pair: Pair | None = None) -> Iterator[tuple[Front, Pair]]:
        """A moed-http before the daemon, and the files of its certificate, which are its own."""
        files = Pair(self.folder / "live.pem", self.folder / "live.key")
        self.put(self.server, files)
        upstream: tuple[object, ...] = ("--server-tls-ca", self.ours.certificate)
        upstream += ("--server-tls-cert", self.client.certificate, "--server-tls-key", self.client.key)
        tls = ("--tls-cert", files.certificate, "--tls-key", files.key)
        with front_of(self.daemon, *upstream, *tls, *flags, context=client_context(self.ours, pair)) as front:
            yield front, files

    def put(self, pair: Pair, files: Pair) -> None:
        shutil.copy(pair.certificate, files.certificate)
        shutil.copy(pair.key, files.key)

    def hang_up(self, front: Front, said: str) -> None:
        before = front.log().count(said)
        front.send_signal(signal.SIGHUP)
        wait_until(lambda: front.log().count(said) > before, f"the log to say '{said}'", WAIT_SECONDS)

    def served(self, front: Front) -> str:
        """The name in the certificate that a new connection is shown."""
        with (
            socket.create_connection(("127.0.0.1", front.port), timeout=60) as plain,
            client_context(self.ours).wrap_socket(plain, server_hostname="localhost") as encrypted,
        ):
            certificate = encrypted.getpeercert()
        assert certificate
        names: Any = certificate["subject"]
        return str(dict(each[0] for each in names)["commonName"])

    def test_answers_come_whole_and_in_parts(self) -> None:
        with self.front() as (front, _):
            status, whole = front.post("/v1/completions", COMPLETION)
            self.assertEqual(status, 200, whole)
            with front.stream("/v1/completions", {**COMPLETION, "stream": True}) as answer:
                lines = answer.read().decode().split("\n\n")
            parts = [json.loads(line[6:])["choices"][0]["text"] for line in lines if line.startswith("data: {")]
            self.assertIn("data: [DONE]", lines)
            self.assertEqual("".join(parts), whole["choices"][0]["text"])
            status, answer = front.post("/v1/completions", {**COMPLETION, "prompt": "once " * 100_000})
            self.assertEqual(status, 400, "a body of many records")
            self.assertEqual(front.stop(), 0, front.log())

    def test_an_answer_without_a_length_ends_with_the_end_of_tls(self) -> None:
        body = json.dumps({**COMPLETION, "stream": True}).encode()
        head = b"POST /v1/completions HTTP/1.0\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(body)
        with (
            self.front() as (front, _),
            socket.create_connection(("127.0.0.1", front.port), timeout=60) as plain,
            client_context(self.ours).wrap_socket(plain, server_hostname="localhost", suppress_ragged_eofs=False) as encrypted,
        ):
            encrypted.sendall(head + body)
            text = b"".join(iter(lambda: encrypted.recv(65536), b""))
            self.assertTrue(text.endswith(b"data: [DONE]\n\n"), text[-200:])

    def test_who_does_not_speak_tls_or_knows_another_authority_has_no_answer(self) -> None:
        with self.front() as (front, _):
            with socket.create_connection(("127.0.0.1", front.port), timeout=60) as plain, contextlib.suppress(OSError):
                plain.sendall(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n")
                self.assertNotIn(b"HTTP", plain.recv(100))
            with (
                socket.create_connection(("127.0.0.1", front.port), timeout=60) as plain,
                self.assertRaises(ssl.SSLCertVerificationError),
            ):
                client_context(self.theirs).wrap_socket(plain, server_hostname="localhost")
            spoken = {version for version in ("tls1_1", "tls1_2", "tls1_3") if speaks(front.address, version)}
            self.assertEqual(spoken, {"tls1_2", "tls1_3"})
            self.assertEqual(front.get("/healthz")[0], 200)

    def test_clients_without_a_certificate_are_refused_where_one_is_needed(self) -> None:
        need = ("--tls-client-ca", self.ours.certificate, "--listen-inference", "127.0.0.1:0")
        with self.front(*need, pair=self.client) as (front, _):
            self.assertEqual(front.get("/v1/models")[0], 200)
            for pair in (None, self.stranger):
                with (
                    socket.create_connection(("127.0.0.1", front.port), timeout=60) as plain,
                    client_context(self.ours, pair).wrap_socket(plain, server_hostname="localhost") as encrypted,
                    self.assertRaises(OSError),  # after the handshake, as TLS 1.3 has it
                ):
                    encrypted.sendall(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n")
                    if not encrypted.recv(100):
                        raise ConnectionError
            authority = self.ours.certificate.read_bytes()
            for pair in (None, self.client):
                key, certificate = (pair.key.read_bytes(), pair.certificate.read_bytes()) if pair else (None, None)
                credentials = grpc.ssl_channel_credentials(authority, key, certificate)
                with grpc.secure_channel(front.inference_address(), credentials) as channel:
                    live = channel.unary_unary("/inference.GRPCInferenceService/ServerLive")
                    if pair:
                        self.assertEqual(live(b"", timeout=60), b"\x08\x01")
                        continue
                    with self.assertRaises(grpc.RpcError):
                        live(b"", timeout=60)

    def test_a_hangup_takes_a_renewed_pair_and_connections_go_on(self) -> None:
        with self.front() as (front, files), contextlib.closing(front.connection()) as kept:
            kept.request("GET", "/healthz")
            self.assertEqual(kept.getresponse().read(), b"ok\n")
            connected = kept.sock
            self.assertEqual(self.served(front), "server")
            self.assertEqual(front.metric("moe_tls_certificate_end_seconds"), end_seconds(self.server.certificate))
            self.put(self.renewed, files)
            self.hang_up(front, "certificates read anew")
            self.assertEqual(front.metric("moe_tls_certificate_end_seconds"), end_seconds(self.renewed.certificate))
            wait_until(lambda: self.served(front) == "renewed", "the renewed certificate", WAIT_SECONDS)
            files.certificate.write_text(self.server.certificate.read_text()[:300])
            self.hang_up(front, "certificates not read anew, those from before go on")
            self.assertEqual(self.served(front), "renewed")
            kept.request("GET", "/healthz")
            self.assertEqual(kept.getresponse().read(), b"ok\n")
            self.assertIs(kept.sock, connected)

    def test_a_hangup_without_tls_changes_nothing(self) -> None:
        front = Front(self.binaries, self.daemon.address)
        with contextlib.closing(front):
            self.hang_up(front, "nothing to read anew")
            self.assertEqual(front.get("/healthz")[0], 200)

    def test_a_wrong_file_is_named(self) -> None:
        pair = ("--tls-cert", self.server.certificate, "--tls-key", self.client.key)
        for flags, said in (
            (pair, "made together"),
            (("--tls-cert", self.server.certificate), "--tls-key is missing"),
            (("--server-tls-ca", self.folder / "absent"), "--server-tls-ca: cannot read"),
            (("--server-tls-cert", self.server.certificate), "--server-tls-key is missing"),
        ):
            run = self.run_program("moed-http", "--listen", "127.0.0.1:0", *flags)
            self.assertEqual(run.returncode, 2, (flags, run.stderr))
            self.assertIn(said, run.stderr)


if __name__ == "__main__":
    main()
