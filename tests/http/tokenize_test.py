"""/tokenize and /detokenize of moed-http, as vLLM has them."""

import json

from tests.http.served import ServedTest
from tests.real_programs import main

MODEL = "q8-q8"  # as pack_demo calls the store
PROMPT = "<|user|>Tell me of a füchsin.<|assistant|>"


class TokenizeTest(ServedTest):
    def test_tokens_are_those_of_the_daemon(self) -> None:
        tokens = self.front.post("/tokenize", {"prompt": PROMPT})[1]["tokens"]
        asked = {"model": MODEL, "max_tokens": 8, "temperature": 0}
        texts, ids = (self.front.post("/v1/completions", {**asked, "prompt": prompt})[1] for prompt in (PROMPT, tokens))
        self.assertEqual(texts["choices"], ids["choices"])
        self.assertEqual(texts["usage"]["prompt_tokens"], len(tokens))
        context = json.loads(self.front.get("/v1/models")[1])["data"][0]["max_model_len"]
        for further in ({}, {"model": MODEL, "add_special_tokens": True, "return_token_strs": False}):
            answer = {"count": len(tokens), "max_model_len": context, "tokens": tokens, "token_strs": None}
            self.assertEqual(self.front.post("/tokenize", {"prompt": PROMPT, **further}), (200, answer))
        self.assertEqual(self.front.post("/detokenize", {"model": MODEL, "tokens": tokens}), (200, {"prompt": PROMPT}))
        self.assertEqual(self.front.post("/tokenize", {"prompt": ""})[1]["tokens"], [])

    def test_what_is_wrong_is_named(self) -> None:
        for path, body, name in (
            ("/tokenize", {}, "prompt"),
            ("/tokenize", {"prompt": 5}, "prompt"),
            ("/tokenize", {"prompt": "x", "return_token_strs": True}, "return_token_strs"),
            ("/tokenize", {"messages": []}, "messages"),
            ("/detokenize", {"tokens": ["x"]}, "tokens[0]"),
            ("/detokenize", {"tokens": [1 << 30]}, "tokens"),
        ):
            with self.subTest(path, **body):
                status, answer = self.front.post(path, body)
                self.assertEqual((status, answer["error"]["param"]), (400, name), answer)
        self.assertEqual(self.front.post("/tokenize", {"model": "another", "prompt": "x"})[0], 404)


if __name__ == "__main__":
    main()
