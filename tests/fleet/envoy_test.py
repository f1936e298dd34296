"""deploy/envoy by the real Envoy in front of three daemons: who is asked, who gets in, what drain, growth and kill cost."""

import json
import signal
from concurrent import futures
from typing import Any

import grpc

from tests.fleet.conversations import Conversation, Load, settled
from tests.fleet.fleet import PROMPT, TOKEN, WAIT_SECONDS, Envoy, FleetTest, envoy_program
from tests.real_programs import main
from tools.server_process import wait_until

SESSIONS = 48
STRAYS = 2  # sessions that the table may move beside those that have to
MODEL = "q8-q8"  # as pack_demo calls the store


class EnvoyCase(FleetTest):
    def envoy(self, edits: dict[str, str] | None = None) -> Envoy:
        envoy = Envoy(self.fleet, envoy_program(self.binaries.parent), edits)
        self.addCleanup(envoy.process.close)
        return envoy


class SettledFleet(EnvoyCase):
    def completion(self, envoy: Envoy, **headers: str) -> tuple[int, bytes]:
        body: dict[str, Any] = {"model": MODEL, "prompt": PROMPT, "max_tokens": 4}
        return envoy.post("/v1/completions", body, **headers)

    def answered_since(self, before: list[int], count: int) -> list[int]:
        """Of each box, once their logs have the last of so many calls."""

        def counted() -> list[int] | None:
            found = [box.answered() - was for box, was in zip(self.fleet.boxes, before, strict=True)]
            return found if sum(found) >= count else None

        return wait_until(counted, f"lines of {count} calls", WAIT_SECONDS)

    def code_of(self, call: Any) -> grpc.StatusCode:
        with self.assertRaises(grpc.RpcError) as raised:
            call()
        assert isinstance(raised.exception, grpc.Call)
        return raised.exception.code()

    def test_only_who_has_a_token_gets_in_and_control_stays_inside(self) -> None:
        from moe.v1 import control_pb2, control_pb2_grpc

        import moed

        envoy = self.envoy()
        tls = moed.Tls(ca=self.fleet.authority.certificate.read_bytes())
        for token in (None, "x" * 40):
            with moed.Client(envoy.server, tls=tls, token=token) as stranger:
                self.assertEqual(self.code_of(lambda: stranger.generate(PROMPT)), grpc.StatusCode.UNAUTHENTICATED)
        self.assertEqual(self.completion(envoy)[0], 401)
        self.assertEqual(self.completion(envoy, authorization=f"Bearer {TOKEN}")[0], 200)
        self.assertEqual(self.completion(envoy, x_api_key=TOKEN)[0], 200)
        self.check_what_needs_no_token(envoy)
        with grpc.secure_channel(envoy.server, tls.credentials()) as channel:
            control = control_pb2_grpc.ControlStub(channel)
            metadata = [("authorization", f"Bearer {TOKEN}")]
            drain = self.code_of(lambda: control.Drain(control_pb2.DrainRequest(), metadata=metadata))
            self.assertEqual(drain, grpc.StatusCode.UNIMPLEMENTED)

    def test_http_has_headers_with_underscores(self) -> None:
        """Codex sends one."""
        headers = {"authorization": f"Bearer {TOKEN}", "session_id": "x", "content-type": "application/json"}
        body = json.dumps({"model": MODEL, "prompt": PROMPT, "max_tokens": 1}).encode()
        self.assertEqual(self.envoy().ask("POST", "/v1/completions", headers, body)[0], 200)

    def test_what_is_logged_is_no_text_token_or_session(self) -> None:
        envoy = self.envoy()
        Conversation(self.balanced(envoy), "secret-session").turn()
        self.completion(envoy, authorization=f"Bearer {TOKEN}")
        wait_until(lambda: len(envoy.lines()) == 2, "two lines", WAIT_SECONDS)
        self.assertEqual({line["path"] for line in envoy.lines()}, {"/moe.v1.Inference/Generate", "/v1/completions"})
        for secret in (PROMPT, TOKEN, "secret-session"):
            self.assertNotIn(secret, envoy.process.log())

    def test_too_many_requests_are_refused_before_they_are_read(self) -> None:
        bucket = "max_tokens: 2000, tokens_per_fill: 1000, fill_interval: 1s"
        few = {bucket: "max_tokens: 3, tokens_per_fill: 1, fill_interval: 3600s"}
        client = self.balanced(self.envoy(few))
        for _ in range(3):
            client.tokenize(PROMPT)
        self.assertEqual(self.code_of(lambda: client.tokenize(PROMPT)), grpc.StatusCode.RESOURCE_EXHAUSTED)

    def test_a_topic_has_its_daemon_while_that_has_room(self) -> None:
        from moe.v1 import inference_pb2, inference_pb2_grpc

        import moed

        envoy = self.envoy()
        named = {"authorization": f"Bearer {TOKEN}"}
        tls = moed.Tls(ca=self.fleet.authority.certificate.read_bytes())
        request = inference_pb2.TokenizeRequest(text=PROMPT)
        asked = [0, 0, 0]
        with grpc.secure_channel(envoy.server, tls.credentials()) as channel:
            stub = inference_pb2_grpc.InferenceStub(channel)
            for topic in range(12):
                before = [box.answered() for box in self.fleet.boxes]
                for _ in range(3):
                    stub.Tokenize(request, metadata=[*named.items(), ("moe-topic", f"topic {topic}")])
                self.assertEqual(self.completion(envoy, moe_topic=f"topic {topic}", **named)[0], 200)
                counted = self.answered_since(before, 4)
                self.assertEqual(sorted(counted), [0, 0, 4], f"{topic}: the same daemon over gRPC and HTTP")
                asked[counted.index(4)] += 1
        self.assertGreater(sum(map(bool, asked)), 1)

    def test_a_silent_call_is_never_cut(self) -> None:
        ill = {"unhealthy_threshold: 2": "unhealthy_threshold: 1000"}  # a daemon that stands still stays where it is
        envoy, impatient = self.envoy(ill), self.envoy({**ill, "idle_timeout: 0s": "idle_timeout: 0.1s"})
        calls = [each for each in envoy.configured("route") if each["cluster"].startswith(("daemons", "fronts"))]
        limits = {(each["timeout"], each.get("idle_timeout")) for each in calls}
        self.assertEqual(limits, {("0s", "0s"), ("5s", None)}, "where nothing is said it is 15 s and 300 s; 5 s are health's")
        self.assertEqual(envoy.configured("stream_idle_timeout"), ["0s"] * len(envoy.configured("access_log")))

        client = self.balanced(envoy)
        names = [f"silent-{number}" for number in range(10)]
        for name in names:
            client.generate(PROMPT, session_id=name, max_new_tokens=1)
        kept = [sorted(box.sessions() & set(names)) for box in self.fleet.boxes]
        silent = max(range(3), key=lambda number: len(kept[number]))
        whole, posted, cut, refused = kept[silent][:4]
        box = self.fleet.boxes[silent].daemon

        def post(through: Envoy, name: str) -> int:
            body = {"model": MODEL, "prompt": PROMPT, "max_tokens": 4, "session_id": name}
            return through.post("/v1/completions", body, moe_session_id=name, authorization=f"Bearer {TOKEN}")[0]

        with futures.ThreadPoolExecutor(2) as pool:
            box.send_signal(signal.SIGSTOP)
            try:
                waiting = [pool.submit(client.generate, PROMPT, session_id=whole, max_new_tokens=4, ignore_eos=True)]
                waiting.append(pool.submit(post, envoy, posted))
                envoy.process.wait_for(lambda: envoy.active() == 2, "both calls to wait for the daemon")
                with self.assertRaises(grpc.RpcError):
                    self.balanced(impatient).generate(PROMPT, session_id=cut, max_new_tokens=4)
                self.assertEqual(post(impatient, refused), 504)
                wait_until(lambda: len(impatient.lines()) == 2, "its lines", WAIT_SECONDS)
                self.assertEqual({line["details"] for line in impatient.lines()}, {"stream_idle_timeout"})
                self.assertEqual([each.done() for each in waiting], [False, False])
            finally:
                box.send_signal(signal.SIGCONT)
            self.assertEqual(waiting[0].result().finish.usage.completion_tokens, 4)
            self.assertEqual(waiting[1].result(), 200)

    def test_http_finds_the_same_daemon_for_a_session_and_any_for_others(self) -> None:
        envoy = self.envoy()
        named = {"authorization": f"Bearer {TOKEN}"}
        for number in range(12):
            for _ in range(2):
                body = {"model": MODEL, "prompt": PROMPT, "max_tokens": 2, "session_id": f"http-{number}"}
                status, answer = envoy.post("/v1/completions", body, moe_session_id=f"http-{number}", **named)
                self.assertEqual(status, 200, answer)
        kept = [{name for name in box.sessions() if name.startswith("http-")} for box in self.fleet.boxes]
        self.assertEqual(sum(map(len, kept)), 12, "each is kept once")
        self.assertGreater(sum(map(bool, kept)), 1)
        before = [box.answered() for box in self.fleet.boxes]
        for _ in range(24):
            self.assertEqual(self.completion(envoy, **named)[0], 200)
        self.assertTrue(all(self.answered_since(before, 24)))


class ChangingFleet(EnvoyCase):
    def load(self, client: Any, **how: int) -> Load:
        load = Load(client, **how)
        self.addCleanup(load.stop)
        return load

    def assert_moved(self, talks: list[Conversation], expected: set[str]) -> None:
        moved = settled(talks, WAIT_SECONDS)
        self.assertLessEqual(expected, moved)
        self.assertLessEqual(len(moved - expected), STRAYS, [talk.said for talk in talks if talk.name in moved - expected])

    def test_a_box_is_drained_one_is_added_and_one_is_killed(self) -> None:
        envoy = self.envoy()
        client = self.balanced(envoy)
        boxes = self.fleet.boxes
        talks = [Conversation(client, f"talk-{number}") for number in range(SESSIONS)]
        for _ in range(2):
            self.assertEqual([talk.said for talk in talks if talk.moved()], [], "nothing has happened")
        kept = [{name for name in box.sessions() if name.startswith("talk-")} for box in boxes]
        self.assertEqual(sum(map(len, kept)), SESSIONS)

        # Drained: whoever it answers is answered to the end, its sessions move and no others.
        load = self.load(client)
        boxes[0].daemon.send_signal(signal.SIGTERM)
        self.assertEqual(boxes[0].daemon.wait(WAIT_SECONDS), 0, boxes[0].daemon.log())
        envoy.wait_for_healthy(2)
        self.assert_moved(talks, kept[0])
        self.assertEqual(load.stop(), [])
        self.assertGreater(load.answers, 10)
        self.assertTrue(all(box.answered() > 0 for box in boxes))

        # Added: what moves goes to the new one.
        load = self.load(client)
        (new,) = self.fleet.add(1)
        envoy.set_boxes([*boxes[1:3], new])
        envoy.wait_for_healthy(3)
        moved = settled(talks, WAIT_SECONDS)
        self.assertEqual(load.stop(), [])
        self.assertLessEqual(len(moved ^ {name for name in new.sessions() if name.startswith("talk-")}), STRAYS)
        self.assertLess(len(moved), SESSIONS * 2 / 3)
        self.assertGreater(len(moved), 0)

        # Killed: its streams fail and say so; what comes afterwards is answered by the others.
        boxes[1].front.close()
        owned = boxes[1].sessions() - boxes[2].sessions() - new.sessions()  # what has moved is still listed where it was
        load = self.load(client, tokens=400)
        before = boxes[1].answered()
        wait_until(lambda: boxes[1].answered() > before, "answers of the box", WAIT_SECONDS)
        boxes[1].daemon.send_signal(signal.SIGKILL)
        envoy.wait_for_healthy(2)
        for failure in load.stop():
            self.assertRegex(failure, "UNAVAILABLE|INTERNAL.*\n.*RST_STREAM")
        self.assertLessEqual(len(load.failures), 3, "one of each thread at most")
        self.assert_moved(talks, {talk.name for talk in talks} & owned)


if __name__ == "__main__":
    main()
