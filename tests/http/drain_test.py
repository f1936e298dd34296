"""How moed-http ends, and what it makes of a daemon that ends: who balances load hears of it before anything is refused."""

import contextlib
import pathlib
import signal
from collections.abc import Iterator
from typing import Any, ClassVar

from tests.http.front import Front, front_of
from tests.real_programs import RealProgramsTest, main
from tools.daemon import Daemon, pack_demo, running
from tools.server_process import wait_until

WAIT_SECONDS = 300
MODEL = "q8-q8"  # as pack_demo calls the store


def ready(front: Front) -> list[int]:
    return [front.get(path)[0] for path in ("/readyz", "/v2/health/ready")]


def wait_until_not_ready(front: Front) -> None:
    wait_until(lambda: ready(front) == [503, 503], "readiness to say no", WAIT_SECONDS)


def completion(front: Front, **more: Any) -> tuple[int, Any]:
    return front.post("/v1/completions", {"model": MODEL, "prompt": "Once upon", "max_tokens": 2, **more})


class DrainTest(RealProgramsTest):
    store: ClassVar[pathlib.Path]
    shared: ClassVar[Daemon]

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        cls.store = pack_demo(cls.binaries, cls.folder, "q8", "q8")
        cls.shared = cls.enterClassContext(cls.daemon())

    @classmethod
    def daemon(cls, *flags: object) -> contextlib.AbstractContextManager[Daemon]:
        return running(cls.binaries, "--store", cls.store, "--memory-budget", "64MiB", *flags)

    @contextlib.contextmanager
    def stream_of(self, front: Front) -> Iterator[Any]:
        """The events of an answer that has begun and goes on for long."""
        body = {"model": MODEL, "prompt": "Once", "stream": True, "max_tokens": 900, "ignore_eos": True}
        with front.stream("/v1/completions", body) as answer:
            self.assertTrue(answer.readline().startswith(b"data: "))
            yield answer

    def test_its_own_end_is_noticed_before_anything_is_refused(self) -> None:
        with front_of(self.shared, "--drain-delay-seconds", 3600) as front:
            self.assertEqual(ready(front), [200, 200])
            front.send_signal(signal.SIGTERM)
            wait_until_not_ready(front)
            self.assertEqual(front.get("/healthz")[0], 200)
            self.assertEqual(completion(front)[0], 200)
            self.assertNotIn("draining", front.log())

            def ends_again(front: Front = front) -> bool:
                front.send_signal(signal.SIGTERM)
                return not front.running()

            wait_until(ends_again, "a second signal to count", WAIT_SECONDS)
            self.assertEqual(front.wait(WAIT_SECONDS), 128 + signal.SIGTERM, "it does not wait")

    def test_after_the_delay_what_is_new_is_refused(self) -> None:
        with self.daemon("--backend", "scalar", "--threads", 1) as daemon:
            flags = ("--drain-delay-seconds", 1, "--drain-seconds", 600)
            with front_of(daemon, *flags) as front, self.stream_of(front) as answer:
                front.send_signal(signal.SIGTERM)
                wait_until(lambda: "draining" in front.log(), "the end of the delay", WAIT_SECONDS)
                self.assertLess(front.log().index("not ready any more"), front.log().index("draining"))
                self.assertEqual(ready(front), [503, 503])
                status, refused = completion(front)
                self.assertEqual((status, refused["error"]["code"]), (503, "unavailable"))
                self.assertTrue(answer.read().endswith(b"data: [DONE]\n\n"))
                self.assertEqual(front.wait(WAIT_SECONDS), 0, front.log())

    def test_a_daemon_that_still_takes_requests_is_given_them(self) -> None:
        with self.daemon("--drain-delay-seconds", 3600) as daemon, front_of(daemon) as front:
            daemon.send_signal(signal.SIGTERM)
            wait_until_not_ready(front)
            self.assertEqual(completion(front)[0], 200)
            self.assertEqual(front.get("/v1/models")[0], 200)

    def test_a_daemon_that_refuses_is_told_of(self) -> None:
        with self.daemon() as daemon, front_of(daemon) as front:
            daemon.moectl("drain")
            wait_until_not_ready(front)
            status, refused = completion(front)
            self.assertEqual((status, refused["error"]["code"]), (503, "unavailable"))
            self.assertIn("draining", refused["error"]["message"])

    def test_a_model_that_was_unloaded_is_not_listed(self) -> None:
        with self.daemon() as daemon, front_of(daemon, "--model-name", MODEL) as front:
            model_ready = f"/v2/models/{MODEL}/ready"
            self.assertEqual([front.get(path)[0] for path in ("/v1/models", model_ready)], [200, 200])
            daemon.moectl("unload")
            wait_until(lambda: front.get("/v1/models")[0] == 503, "the list to end", WAIT_SECONDS)
            self.assertEqual([*ready(front), front.get(model_ready)[0]], [503] * 3)
            status, refused = completion(front)
            self.assertEqual(status, 503)
            self.assertIn("no model is loaded", refused["error"]["message"])
            daemon.moectl("load")
            wait_until(lambda: ready(front) == [200, 200], "the model to be back", WAIT_SECONDS)
            self.assertEqual([front.get(path)[0] for path in ("/v1/models", model_ready)], [200, 200])
            self.assertEqual(completion(front)[0], 200)

    def test_a_frozen_daemon_is_noticed(self) -> None:
        with self.daemon() as daemon, front_of(daemon) as front:
            daemon.send_signal(signal.SIGSTOP)
            wait_until_not_ready(front)
            self.assertEqual(completion(front)[0], 503)
            self.assertIn("the daemon is not reached", front.log())
            daemon.send_signal(signal.SIGCONT)
            wait_until(lambda: ready(front) == [200, 200], "the daemon to be back", WAIT_SECONDS)
            self.assertEqual(completion(front)[0], 200)


if __name__ == "__main__":
    main()
