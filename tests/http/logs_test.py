"""What moed-http and the daemon behind it write of one and the same request."""

import contextlib
import json
import subprocess
import sys
from typing import Any

import grpc

from tests.http.front import Front, front_of, front_of_nobody
from tests.real_programs import RealProgramsTest, main
from tools.daemon import ROOT, Daemon, pack_demo, running
from tools.server_process import wait_until

WAIT_SECONDS = 300
MODEL = "q8-q8"  # as pack_demo calls the store
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
TRACE_PARENT = f"00-{TRACE}-00f067aa0ba902b7-01"
MESSAGES = [{"role": "user", "content": "quokka"}]
JSON = {"content-type": "application/json"}
HOSTILE = (TRACE_PARENT[:-1], TRACE_PARENT.upper(), f'"{TRACE}"', "x" * 1000)


class LogsTest(RealProgramsTest):
    def setUp(self) -> None:
        self.seen = 0  # requests whose lines were looked at

    def daemon_lines(self, daemon: Daemon) -> list[Any]:
        lines = (line.partition(" info request ")[2] for line in daemon.log().splitlines())
        return [json.loads(line) for line in lines if line]

    def traces(self, front: Front, daemon: Daemon, count: int) -> list[tuple[str | None, str | None]]:
        """Of the next requests: what moed-http has, and what the daemon has under the same id."""
        self.seen += count

        def whole() -> list[tuple[str | None, str | None]]:
            asked = [line for line in front.requests_logged() if line["method"] != "GET"]
            found = [[line for line in self.daemon_lines(daemon) if line["id"].endswith(each["id"])] for each in asked]
            if len(asked) < self.seen or not all(found):
                return []
            return [(each.get("trace_id"), line.get("trace_id")) for each, [line] in zip(asked, found, strict=True)][-count:]

        return wait_until(whole, "the lines of both", WAIT_SECONDS)

    def test_a_trace_goes_through(self) -> None:
        store = pack_demo(self.binaries, self.folder, "q8", "q8")
        command = ["protoc", f"--proto_path={ROOT / 'proto'}", f"--python_out={self.folder}", "inference/v2.proto"]
        subprocess.run(command, check=True)
        sys.path.insert(0, str(self.folder))
        from inference import v2_pb2 as pb

        with contextlib.ExitStack() as stack:
            daemon = stack.enter_context(running(self.binaries, "--store", store, "--memory-budget", "64MiB"))
            front = stack.enter_context(front_of(daemon, "--listen-inference", "127.0.0.1:0"))
            bodies = {
                "/v1/completions": {"model": MODEL, "prompt": "quokka", "max_tokens": 2},
                # The model has no chat template: the daemon refuses them.
                "/v1/messages": {"model": MODEL, "messages": MESSAGES, "max_tokens": 2, "stream": True},
                "/v1/messages/count_tokens": {"model": MODEL, "messages": MESSAGES},
                f"/v2/models/{MODEL}/generate": {"text_input": "quokka", "max_tokens": 2},
            }
            for path, body in bodies.items():
                with self.subTest(path):
                    front.request("POST", path, json.dumps(body).encode(), {**JSON, "traceparent": TRACE_PARENT})
                    self.assertEqual(self.traces(front, daemon, 1), [(TRACE, TRACE)])
            body = json.dumps(bodies["/v1/completions"]).encode()
            for value in HOSTILE:
                self.assertEqual(front.request("POST", "/v1/completions", body, {**JSON, "traceparent": value})[0], 200)
            self.assertEqual(self.traces(front, daemon, len(HOSTILE)), [(None, None)] * len(HOSTILE))

            channel = stack.enter_context(grpc.insecure_channel(front.inference_address()))
            infer = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")
            contents = pb.InferTensorContents(bytes_contents=[b"quokka"])
            tensor = pb.ModelInferRequest.InferInputTensor(name="text_input", datatype="BYTES", shape=[1], contents=contents)
            message = pb.ModelInferRequest(model_name=MODEL, inputs=[tensor])
            infer(message.SerializeToString(), metadata=[("traceparent", TRACE_PARENT)], timeout=WAIT_SECONDS)
            counted = b'moe_http_requests_total{route="/inference.GRPCInferenceService/",status="200"} 1\n'
            wait_until(lambda: counted in front.get("/metrics")[1], "the call to be counted", WAIT_SECONDS)
            self.assertEqual(self.traces(front, daemon, 1), [(TRACE, TRACE)])
            for log in (front.log(), daemon.log()):
                self.assertNotIn("quokka", log)
                self.assertNotIn("xxx", log)

    def test_probes_that_go_well_have_no_lines(self) -> None:
        asked = [("/healthz", 200), ("/metrics", 200), ("/readyz", 503), ("/v1/models", 503)]
        for level, lines in (("info", asked[2:]), ("debug", asked)):
            with self.subTest(level), front_of_nobody(self.binaries, "--log-level", level) as front:
                for path, status in asked:
                    self.assertEqual(front.get(path)[0], status, path)
                found: list[tuple[str, int]] = []

                def whole(front: Front = front, found: list[tuple[str, int]] = found, count: int = len(lines)) -> bool:
                    found[:] = [(line["path"], line["status"]) for line in front.requests_logged()]
                    return len(found) >= count

                wait_until(whole, "the lines", WAIT_SECONDS)
                self.assertCountEqual(found, lines)

    def test_an_address_of_the_daemon_that_is_none(self) -> None:
        for flag in ("--server", "--control"):
            for address in ("localhost", "http://127.0.0.1:51051", "127.0.0.1:0"):
                with self.subTest(flag, address=address):
                    ended = self.run_program("moed-http", flag, address, "--insecure")
                    self.assertEqual(ended.returncode, 2)
                    self.assertRegex(ended.stderr, f'{flag}: bad server address: "{address}".* port')


if __name__ == "__main__":
    main()
