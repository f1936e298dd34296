"""A daemon with the demo model, moed-http in front of it, and the real `openai` package."""

import contextlib
from collections.abc import Iterator
from typing import Any, ClassVar

from tests.http.front import Front
from tests.http.served import ServedTest
from tools.daemon import Daemon

with contextlib.suppress(ImportError):  # before client_library.main() has found a Python that has it
    import openai

REQUIREMENTS = ("openai==3.54.0",)
MODEL = "q8-q8"  # as pack_demo calls the store
PROMPT = "Once upon a time there was a little"
WAIT_SECONDS = 300
# Scalar kernels make the demo model slow: a long answer takes seconds, whatever the machine.
SLOW = ("--memory-budget", "64MiB", "--backend", "scalar", "--threads", 1)


class OpenAiTestCase(ServedTest):
    client: ClassVar[Any]

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        cls.client = cls.enterClassContext(client_of(cls.front))


@contextlib.contextmanager
def client_of(front: Front, key: str = "none") -> Iterator[Any]:
    with openai.OpenAI(base_url=f"http://{front.address}/v1", api_key=key, max_retries=0) as client:
        yield client


def running_requests(daemon: Daemon) -> int:
    stats = daemon.json("stats")["stats"]
    return int(stats["running"] + stats["waiting"])
