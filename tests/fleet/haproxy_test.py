"""deploy/haproxy by Debian's HAProxy in front of three daemons: who gets in, where sessions are, what a drain costs."""

import re
import shutil
import signal
import socket
from typing import Any

import grpc

from tests.fleet.conversations import Conversation, Load, settled
from tests.fleet.fleet import PROMPT, TOKEN, WAIT_SECONDS, Balancer, Fleet, FleetTest
from tests.real_programs import main
from tools.daemon import ROOT
from tools.server_process import ServerProcess, free_ports, wait_until

SESSIONS = 30


class HaProxy(Balancer):
    """deploy/haproxy with ports and paths of its own."""

    def __init__(self, fleet: Fleet):
        super().__init__(fleet)
        folder = fleet.folder / "haproxy"
        folder.mkdir()
        for name, pair in (("server", fleet.server), ("client", fleet.client)):
            (folder / f"{name}.pem").write_text(pair.certificate.read_text() + pair.key.read_text())
        shutil.copy(fleet.authority.certificate, folder / "ca.pem")
        (folder / "tokens").write_text(f"Bearer {TOKEN}\n")
        self.server, self.http = (f"127.0.0.1:{port}" for port in free_ports(2))
        text = (ROOT / "deploy" / "haproxy" / "haproxy.cfg").read_text()
        text = text.replace("/etc/haproxy/moed", str(folder))
        text = text.replace("bind :50051", f"bind {self.server}").replace("bind :8080", f"bind {self.http}")
        for number, box in enumerate(fleet.boxes, start=1):
            text = text.replace(f"10.0.0.{number}:50051", box.daemon.address)
            text = text.replace(f"10.0.0.{number}:9464", box.daemon.metrics_address)
            text = text.replace(f"10.0.0.{number}:8080", box.front.address)
        (folder / "haproxy.cfg").write_text(text)
        self.process = ServerProcess(["haproxy", "-f", str(folder / "haproxy.cfg")])

    def lines(self) -> list[str]:
        return re.findall(r'^\{"time".*\}$', self.process.log(), re.M)


def listens(address: str) -> bool:
    host, _, port = address.partition(":")
    try:
        with socket.create_connection((host, int(port))):
            return True
    except ConnectionRefusedError:
        return False


def serves(client: Any) -> bool:
    try:
        return bool(client.tokenize(PROMPT))
    except grpc.RpcError:
        return False


class HaProxyTest(FleetTest):
    def test_sessions_have_a_place_and_a_drain_loses_no_answer(self) -> None:
        import moed

        balancer = HaProxy(self.fleet)
        self.addCleanup(balancer.process.close)
        client = self.balanced(balancer)
        boxes = self.fleet.boxes
        balancer.process.wait_for(lambda: listens(balancer.http), "HAProxy to listen")
        tls = moed.Tls(ca=self.fleet.authority.certificate.read_bytes())
        with moed.Client(balancer.server, tls=tls, token="x" * 40) as stranger, self.assertRaises(grpc.RpcError):
            stranger.generate(PROMPT)
        body = {"model": "q8-q8", "prompt": PROMPT, "max_tokens": 4, "session_id": "secret-session"}
        named = {"authorization": f"Bearer {TOKEN}", "moe_session_id": "secret-session"}
        status, answer = balancer.post("/v1/completions", body, **named)
        self.assertEqual(status, 200, answer)
        body = {"model": "q8-q8", "prompt": PROMPT, "max_tokens": 4}
        for token, expected in ((TOKEN, 200), ("x" * 40, 401)):
            self.assertEqual(balancer.post("/v1/completions", body, x_api_key=token)[0], expected)
            self.assertEqual(balancer.ask("GET", "/v2", {"x-api-key": token})[0], expected)
        self.check_what_needs_no_token(balancer)

        balancer.process.wait_for(lambda: serves(client), "HAProxy to have checked the daemons")
        talks = [Conversation(client, f"talk-{number}") for number in range(SESSIONS)]
        for _ in range(2):
            self.assertEqual([talk.said for talk in talks if talk.moved()], [], "nothing has happened")
        kept = [{name for name in box.sessions() if name.startswith("talk-")} for box in boxes]
        self.assertEqual(sum(map(len, kept)), SESSIONS)
        load = Load(client)
        self.addCleanup(load.stop)
        wait_until(lambda: load.answers > 3, "answers", WAIT_SECONDS)
        boxes[0].daemon.send_signal(signal.SIGTERM)
        self.assertEqual(boxes[0].daemon.wait(WAIT_SECONDS), 0, boxes[0].daemon.log())
        self.assertEqual(settled(talks, WAIT_SECONDS), kept[0])
        self.assertEqual(load.stop(), [])
        for secret in (PROMPT, TOKEN, "secret-session"):
            self.assertNotIn(secret, balancer.process.log())
        self.assertGreater(len(balancer.lines()), SESSIONS)


if __name__ == "__main__":
    main()
