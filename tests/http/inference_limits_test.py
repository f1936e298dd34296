"""The Open Inference Protocol of moed-http and strangers: hostile tensors, floods, stalled clients, the end."""

import concurrent.futures
import contextlib
import json
import signal
import struct
import subprocess
import sys
from collections.abc import Iterator
from typing import Any, ClassVar

import grpc

from tests.http.front import Front
from tests.http.scripted_daemon import ScriptedDaemon, serving, until_cancelled
from tests.real_programs import RealProgramsTest, main
from tools.daemon import ROOT
from tools.server_process import wait_until

pb: Any = None  # of the protocol
moe: Any = None  # of the daemon; both made from proto/ when the tests begin
MODEL = "scripted"
MIB = 1 << 20
WAIT_SECONDS = 300
INFER = "/inference.GRPCInferenceService/ModelInfer"
STREAM = "/inference.GRPCInferenceService/ModelStreamInfer"
PATH = f"/v2/models/{MODEL}/infer"


def element(text: bytes) -> bytes:
    return struct.pack("<I", len(text)) + text


class Endless:
    """Streams a large text again and again, until it is cancelled."""

    def __init__(self) -> None:
        self.begun = self.running = 0

    def daemon(self) -> ScriptedDaemon:
        return ScriptedDaemon({"/moe.v1.Inference/Generate": self.whole}, {"/moe.v1.Inference/GenerateStream": self.stream})

    def whole(self, body: bytes, _: Any) -> bytes:
        answer: bytes = moe.GenerateResponse(
            text=moe.GenerateRequest.FromString(body).text, finish=moe.Finish()
        ).SerializeToString()
        return answer

    def stream(self, body: bytes, context: Any) -> Iterator[bytes]:
        text = moe.GenerateRequest.FromString(body).text
        if text == "whole":
            yield self.whole(body, context)
            return
        self.running += 1
        self.begun += 1
        context.add_callback(lambda: setattr(self, "running", self.running - 1))
        yield moe.GenerateResponse(text="begun").SerializeToString()
        if text == "silent":
            until_cancelled(context)
        while context.is_active():
            yield moe.GenerateResponse(text="x" * 65536).SerializeToString()


class InferenceLimitsTest(RealProgramsTest):
    endless: ClassVar[Endless]
    address: ClassVar[str]

    @classmethod
    def setUpClass(cls) -> None:
        global pb, moe
        super().setUpClass()
        stubs = cls.generate_stubs()
        command = ["protoc", f"--proto_path={ROOT / 'proto'}", f"--python_out={stubs}", "inference/v2.proto"]
        subprocess.run(command, check=True)
        sys.path.insert(0, str(stubs))
        from inference import v2_pb2
        from moe.v1 import inference_pb2

        pb, moe = v2_pb2, inference_pb2
        cls.endless = Endless()
        cls.address = cls.enterClassContext(serving(cls.endless.daemon()))

    @contextlib.contextmanager
    def front(self, *flags: object) -> Iterator[Front]:
        flags = ("--listen-inference", "127.0.0.1:0", "--model-name", MODEL, *flags)
        front = Front(self.binaries, self.address, *flags)
        try:
            front.wait_until_ready()
            yield front
        finally:
            front.close()

    @contextlib.contextmanager
    def channel(self, front: Front, *options: tuple[str, int]) -> Iterator[Any]:
        # A channel of one's own: gRPC shares connections between channels that are alike.
        with grpc.insecure_channel(
            front.inference_address(), options=[("grpc.use_local_subchannel_pool", 1), *options]
        ) as channel:
            yield channel

    def request(self, text: bytes = b"whole", **fields: Any) -> Any:
        inputs = [pb.ModelInferRequest.InferInputTensor(name="text_input", datatype="BYTES", shape=[1])]
        fields = {"model_name": MODEL, "inputs": inputs, "raw_input_contents": [element(text)], **fields}
        return pb.ModelInferRequest(**fields)

    def status_of(self, channel: Any, message: bytes) -> tuple[grpc.StatusCode, str]:
        try:
            channel.unary_unary(INFER)(message, timeout=WAIT_SECONDS)
        except grpc.RpcError as error:
            return error.code(), error.details()
        return grpc.StatusCode.OK, ""

    def stream(self, channel: Any, *requests: Any) -> Any:
        """A ModelStreamInfer whose client sends nothing more, but stays."""

        def outgoing() -> Iterator[bytes]:
            yield from (request.SerializeToString() for request in requests)
            ended.result()

        ended = concurrent.futures.Future[None]()
        call = channel.stream_stream(STREAM)(outgoing())
        call.add_callback(lambda: ended.set_result(None))
        return call

    # Messages

    def test_hostile_tensors_are_refused_by_name(self) -> None:
        def tensor(datatype: str = "BYTES", shape: tuple[int, ...] = (1,), name: str = "text_input", **fields: Any) -> Any:
            return pb.ModelInferRequest.InferInputTensor(name=name, datatype=datatype, shape=shape, **fields)

        def contents(**fields: Any) -> Any:
            return pb.InferTensorContents(**fields)

        cases: list[tuple[str, dict[str, Any]]] = [
            ("text_input: its shape is [4611686018427387904, 4]", {"inputs": [tensor(shape=(2**62, 4))]}),
            ("text_input: its shape is [-1]", {"inputs": [tensor(shape=(-1,))]}),
            ("text_input: its shape is []", {"inputs": [tensor(shape=())]}),
            ("inputs.shape: 1000 entries", {"inputs": [tensor(shape=(1,) * 1000)]}),
            ("text_input: its contents have 3 bytes", {"raw_input_contents": [b"abc"]}),
            ("text_input: its contents have 0 bytes", {"raw_input_contents": [b""]}),
            ("one element of BYTES has 4294967299", {"raw_input_contents": [struct.pack("<I", 2**32 - 1) + b"x"]}),
            ("text_input: its contents have 6 bytes", {"raw_input_contents": [element(b"a") + b"b"]}),
            ("raw_input_contents: 2 entries, there are 1 inputs", {"raw_input_contents": [element(b"a")] * 2}),
            ("text_input: has contents beside", {"inputs": [tensor(contents=contents(bytes_contents=[b"a"]))]}),
            ('the datatype "COMPLEX128" is not read', {"inputs": [tensor("COMPLEX128")]}),
            ("inputs: 100000 entries, at most 64", {"inputs": [tensor()] * 100_000}),
            ("parameters: 1000 entries", {"parameters": {str(i): pb.InferParameter(bool_param=True) for i in range(1000)}}),
            ("top_k: has no value", {"parameters": {"top_k": pb.InferParameter()}}),
            (
                "temperature: the value is not finite",
                {"parameters": {"temperature": pb.InferParameter(double_param=float("inf"))}},
            ),
            (
                "sampling_parameters: the text is no JSON",
                {"parameters": {"sampling_parameters": pb.InferParameter(string_param="{")}},
            ),
            (
                "sampling_parameters: array is no object",
                {"parameters": {"sampling_parameters": pb.InferParameter(string_param="[]")}},
            ),
            ("id: 1000 bytes", {"id": "x" * 1000}),
        ]
        typed: list[tuple[str, Any]] = [
            ("its contents are int_contents, those of BYTES are bytes_contents", contents(int_contents=[1])),
            ("its contents have 2 elements", contents(bytes_contents=[b"a", b"b"])),
            ("its contents have 0 elements", contents()),
        ]
        for words, value in typed:
            cases.append((f"text_input: {words}", {"raw_input_contents": [], "inputs": [tensor(contents=value)]}))
        with self.front() as front, self.channel(front) as channel:
            for words, fields in cases:
                with self.subTest(words):
                    code, message = self.status_of(channel, self.request(**fields).SerializeToString())
                    self.assertEqual(code, grpc.StatusCode.INVALID_ARGUMENT)
                    self.assertIn(words, message)
            typed_text = self.request(raw_input_contents=[], inputs=[tensor(contents=contents(bytes_contents=[b"whole"]))])
            self.assertEqual(self.status_of(channel, typed_text.SerializeToString())[0], grpc.StatusCode.OK)

    def test_bytes_that_are_no_message_are_refused(self) -> None:
        with self.front("--max-body", "64KiB") as front, self.channel(front) as channel:
            for message in (b"\xff" * 100, b"\x0a\x05ab", b"\x0a\x02\xff\xfe", b"\x2a\xff\xff\xff\xff\x0f"):
                with self.subTest(message[:8]):
                    self.assertEqual(self.status_of(channel, message)[0], grpc.StatusCode.INVALID_ARGUMENT)
            self.assertEqual(self.status_of(channel, b"")[0], grpc.StatusCode.INVALID_ARGUMENT)
            code, _ = self.status_of(channel, self.request(b"x" * 200_000).SerializeToString())
            self.assertEqual(code, grpc.StatusCode.RESOURCE_EXHAUSTED)
            self.assertEqual(self.status_of(channel, self.request().SerializeToString())[0], grpc.StatusCode.OK)

    def test_hostile_bodies_of_http_are_refused_by_name(self) -> None:
        def body(**tensor: Any) -> dict[str, Any]:
            return {"inputs": [{"name": "text_input", "datatype": "BYTES", "shape": [1], **tensor}]}

        header = "inference-header-content-length"
        whole = json.dumps(body(parameters={"binary_data_size": 9})).encode()
        cases: list[tuple[str, Any, dict[str, str]]] = [
            ("text_input: its shape is [4611686018427387904, 4]", body(shape=[2**62, 4], data=["a"]), {}),
            ("a dimension of its shape is 1.5", body(shape=[1.5], data=["a"]), {}),
            ("its shape is 1, allowed is [1]", body(shape=1, data=["a"]), {}),
            ("text_input: has neither data and binary_data_size", body(), {}),
            ("its data have 2 elements", body(data=["a", "b"]), {}),
            ("its data have 5, which is no BYTES", body(data=[5]), {}),
            ("and 0 bytes are left", body(parameters={"binary_data_size": 9}), {}),
            ("binary_data_size is -1", body(parameters={"binary_data_size": -1}), {}),
            ("shared_memory_region: unknown parameter", body(data=["a"], parameters={"shared_memory_region": "r"}), {}),
            ("what: unknown member", {"what": 1}, {}),
            ("inputs: 1000 entries", {"inputs": [{}] * 1000}, {}),
            ("is not from 0 to the body's", whole, {header: "1000000"}),
            ("is not from 0 to the body's", whole, {header: "-1"}),
            ("no JSON", whole, {header: str(len(whole) - 1)}),
            ("and 5 bytes are left", whole + b"abcde", {header: str(len(whole))}),
            ("1 bytes after its JSON are of no input", whole + element(b"whole") + b"x", {header: str(len(whole))}),
        ]
        with self.front() as front:
            for words, data, headers in cases:
                with self.subTest(words):
                    status, answer = front.post(PATH, data, headers)
                    self.assertEqual(status, 400)
                    self.assertIn(words, answer["error"])
            good = whole + element(b"whole")
            for types, expected in (
                ({"content-type": "application/octet-stream"}, 200),
                ({}, 200),
                ({"origin": "http://elsewhere"}, 415),
                ({"content-type": "text/plain"}, 415),
            ):
                with self.subTest(types):
                    status, _ = front.request("POST", PATH, good, {header: str(len(whole)), **types})
                    self.assertEqual(status, expected)
            for method, path, expected in (
                ("GET", "/v2/models/", 404),
                ("GET", f"/v2/models/{MODEL}/versions/2", 404),
                ("GET", f"/v2/models/{MODEL}/infer", 404),
                ("POST", f"/v2/models/{MODEL}/forget", 404),
                ("PUT", PATH, 405),
            ):
                with self.subTest(path):
                    data = b"{}" if method == "POST" else None
                    self.assertEqual(front.request(method, path, data, {"content-type": "application/json"})[0], expected)

    # Memory, time

    def test_memory_is_bounded_before_anything_is_parsed(self) -> None:
        many = b"\x2a\x00" * (2 * MIB - 1000)  # empty inputs, each of which would be an object
        with self.front() as front, self.channel(front) as channel:
            self.assertEqual(self.status_of(channel, self.request().SerializeToString())[0], grpc.StatusCode.OK)
            before = front.memory_bytes("VmRSS")
            with concurrent.futures.ThreadPoolExecutor(8) as pool:
                answers = list(pool.map(lambda _: self.status_of(channel, many), range(16)))
            # What gRPC has no room for it refuses itself, or the connection ends that has too much on its way.
            allowed = {grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.UNAVAILABLE}
            self.assertLessEqual({code for code, _ in answers}, allowed)
            self.assertTrue(any("inputs: " in words for _, words in answers))
            self.assertLess(front.memory_bytes("VmHWM"), before + 96 * MIB)

    def test_calls_are_limited(self) -> None:
        with self.front("--max-connections", 3) as front, contextlib.ExitStack() as closing:
            channel = closing.enter_context(self.channel(front))
            for _ in range(3):
                call = self.stream(channel, self.request(b"silent"))
                closing.callback(call.cancel)
                next(call)
            code, words = self.status_of(channel, self.request().SerializeToString())
            self.assertEqual(code, grpc.StatusCode.UNAVAILABLE)
            self.assertIn("--max-connections", words)

    def test_who_does_not_read_is_given_up(self) -> None:
        with self.front("--write-seconds", 1) as front, self.channel(front) as channel:
            before = self.endless.begun
            call = self.stream(channel, self.request(b"endless"))
            wait_until(
                lambda: self.endless.begun > before and self.endless.running == 0, "the request to be cancelled", WAIT_SECONDS
            )
            with self.assertRaises(grpc.RpcError):
                for _ in call:
                    pass
            self.assertEqual(self.status_of(channel, self.request().SerializeToString())[0], grpc.StatusCode.OK)

    # Ends

    def test_what_is_idle_does_not_hold_up_the_end_and_answers_go_on(self) -> None:
        with self.front() as front, self.channel(front) as channel:
            idle = self.stream(channel, self.request())
            next(idle)
            busy = self.stream(channel, self.request(b"silent"))
            next(busy)
            front.send_signal(signal.SIGTERM)
            with self.assertRaises(grpc.RpcError) as ended:
                next(idle)
            self.assertEqual(ended.exception.code(), grpc.StatusCode.UNAVAILABLE)
            self.assertTrue(busy.is_active())
            busy.cancel()
            self.assertEqual(front.wait(WAIT_SECONDS), 0, front.log())

    def test_the_end_does_not_wait_longer_than_it_may(self) -> None:
        with self.front("--drain-seconds", 1) as front, self.channel(front) as channel:
            busy = self.stream(channel, self.request(b"silent"))
            next(busy)
            front.send_signal(signal.SIGTERM)
            self.assertEqual(front.wait(WAIT_SECONDS), 0, front.log())

    def test_every_request_has_a_line_in_the_log(self) -> None:
        with self.front() as front, self.channel(front) as channel:
            self.status_of(channel, self.request().SerializeToString())
            self.status_of(channel, self.request(b"secret", id="x" * 1000).SerializeToString())

            def lines() -> list[Any]:
                found = [line for line in front.requests_logged() if line["method"] == "gRPC"]
                return found if len(found) == 2 else []

            logged = wait_until(lines, "two lines", WAIT_SECONDS)
            self.assertEqual(sorted(line["status"] for line in logged), [200, 400])  # calls end on threads of their own
            self.assertEqual({(line["path"], line["client"]) for line in logged}, {(INFER, "127.0.0.1")})
            self.assertNotIn("secret", front.log())

    def test_health_is_the_daemons(self) -> None:
        with self.front() as front, self.channel(front) as channel:
            health = channel.unary_unary("/grpc.health.v1.Health/Check")
            self.assertEqual(health(b"", timeout=WAIT_SECONDS), b"\x08\x01")
            service = b"inference.GRPCInferenceService"
            self.assertEqual(health(b"\x0a" + bytes([len(service)]) + service, timeout=WAIT_SECONDS), b"\x08\x01")

    def test_its_address_is_checked(self) -> None:
        with self.front() as front:
            ended = self.run_program("moed-http", "--listen", "127.0.0.1:0", "--listen-inference", front.inference_address())
            self.assertEqual(ended.returncode, 1)
            self.assertIn("in use", ended.stderr)
        ended = self.run_program("moed-http", "--listen-inference", "here")
        self.assertEqual(ended.returncode, 2)
        self.assertIn("--listen-inference", ended.stderr)


if __name__ == "__main__":
    main()
