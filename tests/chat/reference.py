"""Chat templates rendered by Python's jinja2 (3.1.6), in the environment that transformers 5.23.0 makes for them."""

import functools
import json
from collections.abc import Callable
from datetime import datetime
from typing import Any

from jinja2 import Template, TemplateError, ext, nodes
from jinja2.exceptions import SecurityError
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace

NOW = datetime(2026, 1, 31, 12, 0, 0)


class Generation(ext.Extension):
    """{% generation %}: what the assistant wrote, in a scope of its own."""

    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.CallBlock(self.call_method("_written"), [], [], body).set_lineno(line)

    def _written(self, caller: Callable[[], str]) -> str:
        return caller()


class TemplateNamespace(Namespace):
    def __init__(*args: Any, **keywords: Any) -> None:
        self, args = args[0], args[1:]
        attributes = dict(*args, **keywords)
        for name in attributes:
            TemplateNamespace.check(name)
        Namespace.__init__(self, attributes)

    def __setitem__(self, name: str, value: Any) -> None:
        TemplateNamespace.check(name)
        Namespace.__setitem__(self, name, value)

    @staticmethod
    def check(name: Any) -> None:
        if isinstance(name, str) and name.startswith("_"):
            raise SecurityError(
                f"Chat templates cannot store underscore-prefixed attributes on a namespace, but got {name!r}. "
                "Please rename the attribute."
            )


def raise_exception(message: Any) -> None:
    raise TemplateError(message)


def to_json(value: Any, ensure_ascii: bool = False, indent: Any = None, separators: Any = None, sort_keys: bool = False) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


@functools.cache
def environment() -> ImmutableSandboxedEnvironment:
    made = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, ext.loopcontrols])
    made.filters["tojson"] = to_json
    made.globals.update(
        raise_exception=raise_exception,
        strftime_now=NOW.strftime,
        dict=lambda *values, **keywords: dict(*values, **keywords),
        namespace=TemplateNamespace,
    )
    return made


@functools.cache
def compiled(source: str) -> Template:
    return environment().from_string(source)


def render(source: str, variables: dict[str, Any]) -> dict[str, str]:
    """The text under "text", or the exception's words under "error"; "refused" for what is no template."""
    try:
        template = compiled(source)
    except (TemplateError, SyntaxError) as error:
        return {"refused": str(error)}
    try:
        return {"text": template.render(**variables)}
    except Exception as error:  # whatever it is, its words are compared
        return {"error": str(error)}
