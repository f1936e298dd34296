"""A daemon with the demo model, whose template shows how reasoning and calls of tools are written."""

import pathlib

from tests.http.served import ServedTest
from tools.daemon import DEMO_CHECKPOINT, pack

MODEL = "demo"
# Shows calls as Hermes' models write them, and opens the reasoning where it is told to.
TEMPLATE = (
    "{% for m in messages %}<|user|>{{ m.reasoning or '' }}{{ m.content or '' }}{{ m.tool_calls|tojson if m.tool_calls }}"
    "{{ m.tool_call_id }}{% endfor %}<|assistant|>{{ tools|tojson if tools }}"
    "{% if thinking is defined %}<think>{{ '' if thinking else '</think>' }}{% endif %}{# <tool_call> #}"
)
SCHEMA = {
    "type": "object",
    "properties": {"animal": {"enum": ["fox", "cat"]}, "hops": {"type": "integer", "minimum": 1, "maximum": 9}},
    "required": ["animal", "hops"],
    "additionalProperties": False,
}


class ConversationTest(ServedTest):
    @classmethod
    def pack(cls) -> pathlib.Path:
        template = cls.folder / "template.jinja"
        template.write_text(TEMPLATE)
        formats = ("--expert-formats", "q8", "--trunk-format", "q8")
        return pack(cls.binaries, DEMO_CHECKPOINT, cls.folder / f"{MODEL}.moed", *formats, "--chat-template", str(template))
