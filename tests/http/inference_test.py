"""The Open Inference Protocol of moed-http as the real `tritonclient` sees it, over gRPC and over HTTP."""

import contextlib
import json
import queue
from typing import Any, ClassVar

from tests.http.client_library import main
from tests.http.front import front_of
from tests.http.served import ServedTest
from tests.tokens import write_tokens
from tools.server_process import wait_until

with contextlib.suppress(ImportError):  # before main() has found a Python that has it
    import numpy as np
    from tritonclient import grpc as triton_grpc
    from tritonclient import http as triton_http
    from tritonclient.utils import InferenceServerException

REQUIREMENTS = ("tritonclient[grpc,http]==2.73.0",)
MODEL = "q8-q8"
PROMPT = "Once upon a time there was a little"
WAIT_SECONDS = 300
SLOW = ("--memory-budget", "64MiB", "--backend", "scalar", "--threads", 1)
GREEDY = {"max_tokens": 24, "temperature": 0.0}


def text_tensor(module: Any, name: str, *texts: str) -> Any:
    tensor = module.InferInput(name, [len(texts)], "BYTES")
    tensor.set_data_from_numpy(np.array([text.encode() for text in texts], dtype=np.object_))
    return tensor


def tensor_of(module: Any, name: str, datatype: str, value: Any) -> Any:
    tensor = module.InferInput(name, [1], datatype)
    tensor.set_data_from_numpy(value)
    return tensor


def text_of(result: Any) -> str:
    array = result.as_numpy("text_output")
    assert array.shape == (1,)
    text: str = array[0].decode() if isinstance(array[0], bytes) else array[0]
    return text


class Stream:
    """A ModelStreamInfer and what came of it."""

    def __init__(self, client: Any, headers: dict[str, str] | None = None):
        self.client = client
        self.came: queue.Queue[tuple[Any, Any]] = queue.Queue()
        client.start_stream(lambda result, error: self.came.put((result, error)), headers=headers)

    def ask(self, **arguments: Any) -> None:
        self.client.async_stream_infer(MODEL, **arguments)

    def next(self) -> Any:
        result, error = self.came.get(timeout=WAIT_SECONDS)
        if error is not None:
            raise error
        return result.get_response()

    def answer(self) -> list[Any]:
        """The responses to the one request that is asked."""
        responses = [self.next()]
        while not responses[-1].parameters["triton_final_response"].bool_param:
            responses.append(self.next())
        return responses


def joined(responses: list[Any]) -> str:
    return "".join(text_of(triton_grpc.InferResult(response)) for response in responses)


class InferenceTest(ServedTest):
    front_flags = ("--listen-inference", "127.0.0.1:0")
    grpc_address: ClassVar[str]
    expected: ClassVar[dict[str, Any]]

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        cls.grpc_address = cls.front.inference_address()
        cls.expected = cls.daemon.json("generate", "--prompt", PROMPT, "--max-new-tokens", 24, "--temperature", 0)

    def setUp(self) -> None:
        self.grpc = self.enterContext(triton_grpc.InferenceServerClient(self.grpc_address))
        self.http = self.enterContext(triton_http.InferenceServerClient(self.front.address, network_timeout=WAIT_SECONDS))
        self.clients = ((triton_grpc, self.grpc), (triton_http, self.http))

    def infer(self, module: Any, client: Any, **arguments: Any) -> Any:
        inputs = arguments.pop("inputs", None) or [text_tensor(module, "text_input", PROMPT)]
        return client.infer(arguments.pop("model", MODEL), inputs, **{"parameters": GREEDY, **arguments})

    def refused(self, words: str, module: Any, client: Any, **arguments: Any) -> Any:
        with self.assertRaises(InferenceServerException) as caught:
            self.infer(module, client, **arguments)
        self.assertIn(words, str(caught.exception))
        return caught.exception

    # What there is

    def test_server_and_model_are_live_ready_and_described(self) -> None:
        for module, client in self.clients:
            with self.subTest(module.__name__):
                self.assertTrue(client.is_server_live())
                self.assertTrue(client.is_server_ready())
                self.assertTrue(client.is_model_ready(MODEL))
                self.assertTrue(client.is_model_ready(MODEL, "1"))
        server = self.http.get_server_metadata()
        model = self.http.get_model_metadata(MODEL)
        self.assertEqual(server["name"], "moed")
        self.assertIn("binary_tensor_data", server["extensions"])
        self.assertEqual(model["inputs"], [{"name": "text_input", "datatype": "BYTES", "shape": [1]}])
        self.assertEqual(model["outputs"], [{"name": "text_output", "datatype": "BYTES", "shape": [1]}])
        same = self.grpc.get_server_metadata()
        self.assertEqual((same.name, same.version, list(same.extensions)), tuple(server.values()))
        tensors = self.grpc.get_model_metadata(MODEL, "1")
        self.assertEqual((tensors.name, list(tensors.versions), tensors.platform), (MODEL, ["1"], model["platform"]))
        self.assertEqual([(each.name, list(each.shape)) for each in tensors.inputs], [("text_input", [1])])

    def test_other_models_and_versions_are_not_found(self) -> None:
        for module, client in self.clients:
            for model, version, words in (("gpt-4o", "", MODEL), (MODEL, "2", 'version "2"')):
                with self.subTest(module.__name__, model=model):
                    error = self.refused(words, module, client, model=model, model_version=version)
                    self.assertIn(error.status(), ("StatusCode.NOT_FOUND", "404"))
                    with self.assertRaises(InferenceServerException):
                        client.get_model_metadata(model, version)

    def test_what_is_not_offered_of_a_model_is_told(self) -> None:
        for path in (MODEL, f"{MODEL}/versions/1"):
            for what in ("config", "stats"):
                status, answer = self.front.get(f"/v2/models/{path}/{what}")
                self.assertEqual((status, f'"{what}" is not offered' in json.loads(answer)["error"]), (404, True), answer)
        self.assertIn(b"there is no model", self.front.get("/v2/models/other/config")[1])
        self.assertIn(b'there is no version \\"2\\"', self.front.get(f"/v2/models/{MODEL}/versions/2")[1])

    # One response

    def test_an_answer_is_what_the_daemon_generates(self) -> None:
        for module, client in self.clients:
            with self.subTest(module.__name__):
                result = self.infer(module, client, request_id="mine")
                self.assertEqual(text_of(result), self.expected["text"])
        response = self.infer(triton_grpc, self.grpc, request_id="mine").get_response()
        self.assertEqual((response.model_name, response.model_version, response.id), (MODEL, "1", "mine"))
        self.assertEqual(response.parameters["finish_reason"].string_param, "length")
        self.assertEqual(response.parameters["completion_tokens"].int64_param, 24)
        self.assertEqual(response.parameters["prompt_tokens"].int64_param, self.expected["usage"]["prompt_tokens"])
        response = self.infer(triton_http, self.http, request_id="mine").get_response()
        self.assertEqual((response["model_name"], response["model_version"], response["id"]), (MODEL, "1", "mine"))
        self.assertEqual(response["parameters"]["finish_reason"], "length")

    def test_tensors_may_be_json_or_bytes(self) -> None:
        plain = triton_http.InferInput("text_input", [1], "BYTES")
        plain.set_data_from_numpy(np.array([PROMPT.encode()], dtype=np.object_), binary_data=False)
        for binary in (False, True):
            outputs = [triton_http.InferRequestedOutput("text_output", binary_data=binary)]
            result = self.infer(triton_http, self.http, inputs=[plain], outputs=outputs)
            self.assertEqual(text_of(result), self.expected["text"])
            self.assertEqual("data" in result.get_output("text_output"), not binary)

    def test_parameters_stand_where_backends_have_them(self) -> None:
        sampling = json.dumps(GREEDY)
        for module, client in self.clients:
            text = text_tensor(module, "text_input", PROMPT)
            cases = [
                [text, text_tensor(module, "sampling_parameters", sampling)],
                [
                    text,
                    tensor_of(module, "max_tokens", "INT32", np.array([24], np.int32)),
                    tensor_of(module, "temperature", "FP32", np.array([0], np.float32)),
                    tensor_of(module, "stream", "BOOL", np.array([False])),
                    tensor_of(module, "random_seed", "UINT64", np.array([2**63], np.uint64)),
                ],
            ]
            for inputs in cases:
                with self.subTest(module.__name__, inputs=len(inputs)):
                    self.assertEqual(text_of(self.infer(module, client, inputs=inputs, parameters=None)), self.expected["text"])

    def test_seed_stop_and_time_limit(self) -> None:
        stop = self.expected["text"][10:14]
        for module, client in self.clients:
            with self.subTest(module.__name__):
                seeded = {"max_tokens": 16, "temperature": 1.0, "seed": 7}
                texts = [text_of(self.infer(module, client, parameters={**seeded, "seed": seed})) for seed in (7, 7, 8)]
                self.assertEqual(texts[0], texts[1])
                self.assertNotEqual(texts[0], texts[2])
                stopped = text_of(self.infer(module, client, parameters={**GREEDY, "stop": stop}))
                self.assertEqual(stopped, self.expected["text"][: self.expected["text"].index(stop)])
                timed = self.infer(module, client, parameters=GREEDY, timeout=WAIT_SECONDS * 1_000_000)
                self.assertEqual(text_of(timed), self.expected["text"])

    def test_a_session_goes_on(self) -> None:
        for module, client in self.clients:
            session = {**GREEDY, "session_id": f"of {module.__name__}"}
            first = self.infer(module, client, parameters=session).get_response()
            tokens = (
                first["parameters"]["session_tokens"]
                if isinstance(first, dict)
                else first.parameters["session_tokens"].int64_param
            )
            following = {**session, "must_exist": True, "expected_tokens": tokens}
            inputs = [text_tensor(module, "text_input", " And then")]
            self.infer(module, client, inputs=inputs, parameters=following, headers={"moe-session-id": session["session_id"]})
            self.refused("expected_tokens", module, client, inputs=inputs, parameters=following)
            self.refused("moe-session-id", module, client, parameters=session, headers={"moe-session-id": "another"})

    def test_what_is_wrong_is_named(self) -> None:
        for module, client in self.clients:
            text = text_tensor(module, "text_input", PROMPT)
            whole = tensor_of(module, "text_input", "INT32", np.array([1], np.int32))
            other = text_tensor(module, "prompt", PROMPT)
            half = module.InferInput("text_input", [1], "BYTES")
            half.set_data_from_numpy(np.array([b"\xe2\x82"], dtype=np.object_))
            half_number = tensor_of(module, "max_tokens", "FP16", np.array([1], np.float16))
            nan = tensor_of(module, "temperature", "FP32", np.array([np.nan], np.float32))
            cases: list[tuple[str, dict[str, Any]]] = [
                ("text_input: its shape is [2], allowed is [1]", {"inputs": [text_tensor(module, "text_input", "a", "b")]}),
                ("text_input: 1 is no string", {"inputs": [whole]}),
                ("prompt: unknown parameter", {"inputs": [text, other]}),
                ("text_input: missing", {"inputs": [tensor_of(module, "top_k", "INT32", np.array([1], np.int32))]}),
                ("text_input: its text is no UTF-8", {"inputs": [half]}),
                ("text_input: is given twice", {"inputs": [text, text_tensor(module, "text_input", "x")]}),
                ('max_tokens: the datatype "FP16" is not read', {"inputs": [text, half_number]}),
                ("temperature: its element is not finite", {"inputs": [text, nan]}),
                (
                    "max_tokens: is given twice",
                    {"inputs": [text, tensor_of(module, "max_tokens", "INT8", np.array([1], np.int8))]},
                ),
                ("max_tokens", {"parameters": {"max_tokens": 0}}),
                ("max_tokens", {"parameters": {"max_tokens": "many"}}),
                ("top_p", {"parameters": {"top_p": 1.5}}),
                ("magic: unknown parameter", {"parameters": {"magic": True}}),
                ("stream: true needs ModelStreamInfer", {"parameters": {"stream": True}}),
                ("session_id", {"sequence_id": 7}),
                ('there is no "logits"; there is text_output', {"outputs": [module.InferRequestedOutput("logits")]}),
                ("classification", {"outputs": [module.InferRequestedOutput("text_output", class_count=3)]}),
            ]
            for words, arguments in cases:
                with self.subTest(module.__name__, words=words):
                    error = self.refused(words, module, client, **arguments)
                    self.assertIn(error.status(), ("StatusCode.INVALID_ARGUMENT", "400"))
            shared = module.InferInput("text_input", [1], "BYTES")
            shared.set_shared_memory("region", 16)
            self.refused("shared_memory", module, client, inputs=[shared])

    # Many responses

    def test_a_stream_is_the_same_text(self) -> None:
        stream = Stream(self.grpc)
        text = [text_tensor(triton_grpc, "text_input", PROMPT)]
        stream.ask(inputs=text, request_id="first", parameters=GREEDY)
        parts = stream.answer()
        self.assertEqual(joined(parts), self.expected["text"])
        self.assertEqual({(part.id, part.model_name) for part in parts}, {("first", MODEL)})
        self.assertEqual(parts[-1].parameters["finish_reason"].string_param, "length")
        stream.ask(inputs=text, request_id="second", parameters={**GREEDY, "stream": False}, enable_empty_final_response=True)
        whole = stream.answer()
        self.assertEqual((len(whole), joined(whole)), (1, self.expected["text"]))
        self.grpc.stop_stream()
        self.assertTrue(stream.came.empty(), "nothing after the final response")

    def test_requests_of_a_stream_are_answered_side_by_side(self) -> None:
        stream = Stream(self.grpc)
        ids = [f"request {i}" for i in range(40)]
        for name in ids:
            inputs = [text_tensor(triton_grpc, "text_input", PROMPT)]
            stream.ask(inputs=inputs, request_id=name, parameters={"max_tokens": 8, "temperature": 0.0})
        texts = dict.fromkeys(ids, "")
        ended: set[str] = set()
        while len(ended) < len(ids):
            part = stream.next()
            self.assertNotIn(part.id, ended)
            texts[part.id] += joined([part])
            if part.parameters["triton_final_response"].bool_param:
                ended.add(part.id)
        self.assertEqual(len(set(texts.values())), 1)
        self.grpc.stop_stream()

    def test_what_is_wrong_with_one_request_ends_that_one(self) -> None:
        stream = Stream(self.grpc)
        text = [text_tensor(triton_grpc, "text_input", PROMPT)]
        stream.ask(inputs=text, parameters={"top_p": 7.0})
        with self.assertRaisesRegex(InferenceServerException, "top_p"):
            stream.next()
        stream.ask(inputs=[], request_id="empty")
        with self.assertRaisesRegex(InferenceServerException, "text_input: missing"):
            stream.next()
        stream.ask(inputs=text, parameters=GREEDY)
        self.assertEqual(joined(stream.answer()), self.expected["text"])
        self.grpc.stop_stream()

    def test_generate_of_http(self) -> None:
        body = {"text_input": PROMPT, "parameters": GREEDY, "stop_words": "", "id": "mine"}
        status, answer = self.front.post(f"/v2/models/{MODEL}/generate", body)
        self.assertEqual((status, answer["text_output"], answer["id"]), (200, self.expected["text"], "mine"))
        self.assertEqual(answer["parameters"]["finish_reason"], "length")
        path = f"/v2/models/{MODEL}/versions/1/generate_stream"
        for parts in (True, False):
            data = json.dumps({"text_input": PROMPT, "max_tokens": 24, "temperature": 0, "stream": parts}).encode()
            status, events = self.front.request("POST", path, data, {"content-type": "application/json"})
            self.assertEqual(status, 200)
            objects = [json.loads(event.removeprefix("data: ")) for event in events.decode().split("\n\n") if event]
            self.assertEqual("".join(each["text_output"] for each in objects), self.expected["text"])
            self.assertEqual([each["parameters"]["triton_final_response"] for each in objects].count(True), 1)
            self.assertTrue(parts or len(objects) == 1)
        status, answer = self.front.post(f"/v2/models/{MODEL}/generate", {"text_input": PROMPT, "parameters": {"stream": True}})
        self.assertEqual((status, "generate_stream" in answer["error"]), (400, True))

    def test_null_is_as_if_it_were_absent(self) -> None:
        path = f"/v2/models/{MODEL}/generate"
        nulls = {"parameters": None, "sampling_parameters": None, "stop": None, "what": None, "id": None}
        status, answer = self.front.post(path, {"text_input": PROMPT, "max_tokens": 24, "temperature": 0, **nulls})
        self.assertEqual((status, answer.get("text_output")), (200, self.expected["text"]), answer)
        tensor = {"name": "text_input", "shape": [1], "datatype": "BYTES", "data": [PROMPT], "parameters": None, "what": None}
        body = {"inputs": [tensor], "outputs": None, "what": None, "parameters": {**GREEDY, "seed": None}}
        status, answer = self.front.post(f"/v2/models/{MODEL}/infer", body)
        self.assertEqual(status, 200, answer)
        self.assertEqual(answer["outputs"][0]["data"], [self.expected["text"]])
        status, answer = self.front.post(path, {"text_input": None})
        self.assertEqual((status, answer["error"].partition(":")[0]), (400, "text_input"))

    # Who may ask, for how long

    def test_keys_are_asked_for(self) -> None:
        known = (("triton", "infer", "correct-horse-battery"), ("watcher", "observe", "another-horse-battery"))
        tokens = write_tokens(self.folder / "tokens", *known)
        with front_of(self.daemon, "--listen-inference", "127.0.0.1:0", "--tokens", tokens) as front:
            with triton_grpc.InferenceServerClient(front.inference_address()) as client:
                self.assertTrue(client.is_server_live() and client.is_server_ready())
                error = self.refused("token", triton_grpc, client)
                self.assertEqual(error.status(), "StatusCode.UNAUTHENTICATED")
                with self.assertRaises(InferenceServerException):
                    client.get_model_metadata(MODEL)
                with self.assertRaisesRegex(InferenceServerException, "lacks the scope infer"):
                    self.infer(triton_grpc, client, headers={"authorization": "Bearer another-horse-battery"})
                headers = {"authorization": "Bearer correct-horse-battery"}
                self.assertEqual(text_of(self.infer(triton_grpc, client, headers=headers)), self.expected["text"])
                with self.assertRaisesRegex(InferenceServerException, "token"):
                    Stream(client).next()
            with triton_http.InferenceServerClient(front.address) as client:
                self.assertTrue(client.is_server_live() and client.is_server_ready())
                self.assertEqual(self.refused("token", triton_http, client).status(), "401")

    def test_a_client_that_goes_away_ends_its_request(self) -> None:
        with self.running("--store", self.store, *SLOW) as daemon:

            def runs() -> int:
                stats = daemon.json("stats")["stats"]
                return int(stats["running"] + stats["waiting"])

            with front_of(daemon, "--listen-inference", "127.0.0.1:0") as front:
                long = {"max_tokens": 1000, "ignore_eos": True}
                text = [text_tensor(triton_grpc, "text_input", PROMPT)]
                with triton_grpc.InferenceServerClient(front.inference_address()) as client:
                    stream = Stream(client)
                    stream.ask(inputs=text, parameters=long)
                    stream.next()
                    client.stop_stream(cancel_requests=True)
                    wait_until(lambda: runs() == 0, "the stream's request to end", WAIT_SECONDS)
                    with self.assertRaises(InferenceServerException) as late:
                        self.infer(triton_grpc, client, parameters=long, client_timeout=0.5)
                    self.assertEqual(late.exception.status(), "StatusCode.DEADLINE_EXCEEDED")
                    wait_until(lambda: runs() == 0, "the late request to end", WAIT_SECONDS)


if __name__ == "__main__":
    main("tests.http.inference_test", "tritonclient", REQUIREMENTS)
