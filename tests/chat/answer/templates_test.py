"""What real chat templates make of an assistant's message is parsed back to its reasoning, text and calls.

The templates are those of chat_parity. Those whose format is "think" or "plain" write calls in no form that moed knows.
"""

import argparse
import json
import os
import subprocess
import sys
import unittest
from pathlib import Path
from typing import Any

from tests.chat.conversations import ASK, CLOCK, Message, assistant, call, variables
from tests.chat.parity_test import REQUIREMENTS, real_templates
from tests.virtual_environment import exit_code, python_with

WITHOUT_CALLS = ("think", "plain")
# They look like another's form and are none that moed knows: their calls stay text.
UNKNOWN = ("ByteDance-Seed-OSS.jinja", "MiniMax-M3.jinja")
LEAST_CALLS = 200

options = argparse.Namespace(build="", templates=[])

ARGUMENTS: dict[str, Any] = {
    "place": 'Köln "am" Rhein',
    "days": 2,
    "where": {"lat": 50.9, "lon": None},
    "ok": True,
    "list": [1, "<b>"],
}
SCHEMA = {"place": "string", "days": "integer", "where": "object", "ok": "boolean", "list": "array"}
PROPERTIES: Any = {name: {"type": kind, "description": name} for name, kind in SCHEMA.items()}
PARAMETERS: dict[str, Any] = {"type": "object", "properties": PROPERTIES, "required": ["place"]}
TOOLS: list[Any] = [
    {"type": "function", "function": {"name": "get_weather", "description": "x", "parameters": PARAMETERS}},
    CLOCK,
]
REASONS = {"reasoning_content": "Look it up.", "thinking": "Look it up.", "reasoning": "Look it up."}
ANSWERS: dict[str, Message] = {
    "a call": assistant("", tool_calls=[call("get_weather", ARGUMENTS)]),
    "two calls": assistant("", tool_calls=[call("get_weather", ARGUMENTS, "aaaaaaaaa"), call("clock", {}, "bbbbbbbbb")]),
    "reasoning, text and a call": assistant("I look.", tool_calls=[call("clock", {"utc": "yes"})], **REASONS),
    "reasoning and a call": assistant("", tool_calls=[call("clock", {"utc": "yes"})], **REASONS),
    "text": assistant("It is **12** °C."),
}


def calls_of(message: Message) -> list[tuple[str, Any]]:
    return [(one["function"]["name"], one["function"]["arguments"]) for one in message.get("tool_calls", [])]


class TemplatesTest(unittest.TestCase):
    def test_what_templates_write_is_parsed_back(self) -> None:
        folder = Path(options.build) / "chat_parity"
        folder.mkdir(parents=True, exist_ok=True)
        templates = [Path(path) for path in options.templates] or real_templates(folder, python_with(folder, REQUIREMENTS))
        cases: list[dict[str, Any]] = []
        for file in templates:
            if file.name in UNKNOWN:
                continue
            for name, answer in ANSWERS.items():
                given = {"enable_thinking": True, "thinking": True, "tools": TOOLS}
                asked = variables({**given, "messages": [ASK]}, True)
                answered = variables({**given, "messages": [ASK, answer]}, False)
                cases.append({"file": str(file), "name": name, "asked": asked, "answered": answered})
        result = subprocess.run(
            [os.path.join(options.build, "tests", "answer_cases")],
            input="".join(json.dumps(case) + "\n" for case in cases),
            capture_output=True,
            text=True,
            check=True,
        )
        parsed = 0
        for case, line in zip(cases, result.stdout.rstrip("\n").split("\n"), strict=True):
            outcome = json.loads(line)
            if "error" in outcome or outcome["format"] in WITHOUT_CALLS:
                continue  # the template refuses such a message
            with self.subTest(template=Path(case["file"]).name, case=case["name"], **outcome):
                parsed += self.compare(ANSWERS[case["name"]], outcome)
        if not options.templates:
            self.assertGreaterEqual(parsed, LEAST_CALLS)

    def compare(self, answer: Message, outcome: dict[str, Any]) -> int:
        calls = [(one["name"], json.loads(one["arguments"])) for one in outcome["calls"]]
        self.assertEqual(outcome["held_calls"], len(calls), "a mask lets them through")
        # Some templates leave calls out.
        self.assertEqual(calls, [one for one in calls_of(answer) if one[0] in outcome["answer"]])
        if not calls:
            self.assertTrue(outcome["text"].startswith(answer["content"]))
        # Some leave out the reasoning of messages with calls; gpt-oss's writes their text as such.
        self.assertIn(outcome["reasoning"], ("", answer.get("reasoning_content", ""), answer["content"]))
        return len(calls)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", required=True, help="folder of the build")
    parser.add_argument("--templates", nargs="*", default=[], help="these instead of the package's")
    arguments = parser.parse_args()
    options.build, options.templates = os.path.abspath(arguments.build), arguments.templates
    outcome = unittest.main(argv=sys.argv[:1], exit=False).result
    sys.exit(exit_code(outcome))
