#!/usr/bin/env python3
"""Writes docs/metrics.md from what a daemon serves. usage: curl -s 127.0.0.1:9464/metrics | metrics_page.py >docs/metrics.md"""

import re
import sys
from dataclasses import dataclass, field

SERIES = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? ")
HEAD = """# Metrics

What `--metrics-listen` (127.0.0.1:9464) serves at `/metrics`, in the format of Prometheus, written by `tools/metrics_page.py`
from a daemon with tokens. A test holds this page against a daemon. Rules and alerts made of them:
[rules.yml](../deploy/prometheus/rules.yml) and the [runbook](runbook.md). With a device there are also `moe_device_steps_total`,
`moe_expert_tier_uses_total` and `moe_expert_tier_copied_bytes_total`. With TLS there is `moe_tls_certificate_end_seconds`:
when the first of its certificates expires.

| name | type | labels | what it is |
|---|---|---|---|
"""


@dataclass
class Family:
    help: str
    type: str = ""
    labels: set[str] = field(default_factory=set)


def families(text: str) -> dict[str, Family]:
    found: dict[str, Family] = {}
    for line in text.splitlines():
        if line.startswith("# HELP "):
            name, said = line.split(" ", 3)[2:]
            found[name] = Family(said)
        elif line.startswith("# TYPE "):
            name, kind = line.split(" ", 3)[2:]
            found[name].type = kind
        elif match := SERIES.match(line):
            name = match[1] if match[1] in found else re.sub("_(bucket|sum|count)$", "", match[1])
            found[name].labels |= set(re.findall(r'(\w+)="', match[2] or "")) - {"le"}
    return found


def page(text: str) -> str:
    rows = (
        f"| `{name}` | {family.type} | {', '.join(sorted(family.labels))} | {family.help} |\n"
        for name, family in families(text).items()
    )
    return HEAD + "".join(rows)


if __name__ == "__main__":
    print(page(sys.stdin.read()), end="")
