"""GET /moed/experts: what moed-http tells of the daemon's experts."""

import contextlib
import http.client
import itertools
import json
import signal
import threading
from collections.abc import Iterator
from typing import Any

from tests.http.front import CALL_SECONDS, Front, front_of, front_of_nobody
from tests.http.scripted_daemon import ScriptedDaemon, serving
from tests.http.served import ServedTest
from tests.real_programs import main
from tests.tokens import write_tokens
from tools.daemon import Daemon

PATH = "/moed/experts"
CONTROL = "/moe.v1.Control"
LAYERS, EXPERTS = 8, 32
KEY = "a-key-of-sixteen-characters"


@contextlib.contextmanager
def events_of(front: Front, headers: dict[str, str] | None = None) -> Iterator[Iterator[Any]]:
    connection = http.client.HTTPConnection(front.address, timeout=CALL_SECONDS)
    with contextlib.closing(connection):
        connection.request("GET", PATH, headers=headers or {})
        with connection.getresponse() as answer:
            assert answer.status == 200, answer.read()
            assert answer.getheader("content-type") == "text/event-stream; charset=utf-8"
            yield (json.loads(line[len(b"data: ") :]) for line in answer if line.startswith(b"data: "))


Cells = dict[tuple[int, int], list[int]]  # (layer, expert): resident, hits, misses, lowered, skipped, reads, on_device


def cells_of(event: Any) -> Cells:
    return {(layer["layer"], expert): numbers for layer in event["layers"] for expert, *numbers in layer["experts"]}


def counted(cells: Cells) -> list[tuple[int, int, int]]:
    """Hits, misses, residents of each layer."""
    layers = [[cell for (layer, _), cell in cells.items() if layer == number] for number in range(LAYERS)]
    return [(sum(c[1] for c in cells), sum(c[2] for c in cells), sum(c[0] & 1 for c in cells)) for cells in layers]


class ExpertsTest(ServedTest):
    # So little that experts are read again and again, and none is read into free room.
    daemon_flags = ("--memory-budget", "12MiB", "--fill-cache", "off")

    def generate(self) -> None:
        self.daemon.moectl("generate", "--prompt", "Once upon a time", "--max-new-tokens", 16, "--temperature", 0)

    def counted_by_layer(self) -> list[tuple[int, int, int]]:
        """What GetCacheState says of each layer: hits, misses, residents."""
        layers = self.daemon.json("stats")["cache"]["layers"]
        return [(int(layer["hits"]), int(layer["misses"]), sum(layer["resident"])) for layer in layers]

    def test_the_first_event_tells_all_and_the_next_ones_what_changed(self) -> None:
        with events_of(self.front) as events:
            first = next(events)
            self.assertTrue(first["whole"])
            self.assertEqual((len(first["layers"]), first["experts"]), (LAYERS, EXPERTS))
            self.assertEqual(first["formats"], ["q8"])
            known = cells_of(first)
            self.assertEqual(len(known), LAYERS * EXPERTS)
            self.generate()
            for event in itertools.islice(events, 200):
                self.assertFalse(event["whole"])
                known.update(cells_of(event))
                of_daemon = self.counted_by_layer()
                if counted(known) == of_daemon:  # reads ahead may still be under way
                    break
            self.assertEqual(counted(known), of_daemon)
            self.assertGreater(sum(reads for *_, reads, _ in known.values()), 0)
            self.assertEqual(event["totals"]["expert_hits"], sum(hits for hits, _, _ in counted(known)))

    def test_it_needs_a_key_where_others_do(self) -> None:
        known = (("page", "infer,observe", KEY), ("asker", "infer", "another-key"))
        with front_of(self.daemon, "--tokens", write_tokens(self.folder / "tokens", *known)) as front:
            self.assertEqual(front.get(PATH)[0], 401)
            status, body = front.get(PATH, {"authorization": "Bearer another-key"})
            self.assertEqual((status, json.loads(body)["error"]["code"]), (403, "insufficient_scope"))
            self.assertIn("lacks the scope observe", json.loads(body)["error"]["message"])
            with events_of(front, {"authorization": f"Bearer {KEY}"}) as events:
                self.assertTrue(next(events)["whole"])

    def test_the_end_of_the_program_does_not_wait_for_those_who_listen(self) -> None:
        with front_of(self.daemon, "--drain-seconds", 3600) as front, events_of(front) as events:
            next(events)
            front.send_signal(signal.SIGTERM)
            for _ in events:
                pass
            self.assertEqual(front.wait(CALL_SECONDS), 0)

    def test_without_a_daemon(self) -> None:
        with front_of_nobody(self.binaries) as front:
            status, body = front.get(PATH)
            self.assertEqual((status, json.loads(body)["error"]["code"]), (503, "unavailable"))

    def test_a_daemon_that_ends(self) -> None:
        daemon = Daemon(self.binaries, "--store", self.store, "--memory-budget", "64MiB")
        with contextlib.closing(daemon), front_of(daemon) as front, events_of(front) as events:
            next(events)
            daemon.close()
            *_, last = events
            self.assertEqual(last["error"]["code"], "unavailable")

    @contextlib.contextmanager
    def ended_while_asked(self) -> Iterator[tuple[Front, threading.Event]]:
        """One whose listener it has given up while the daemon is asked; and what lets the daemon answer."""
        flags = ("--model-name", "m", "--drain-seconds", 0)
        asked, answer = threading.Event(), threading.Event()

        def stats(*_: Any) -> bytes:
            asked.set()
            answer.wait(CALL_SECONDS)
            return b""

        scripted = ScriptedDaemon({f"{CONTROL}/GetExpertMap": lambda *_: b"", f"{CONTROL}/GetStats": stats}, {})
        with contextlib.ExitStack() as closing:
            address = closing.enter_context(serving(scripted))
            closing.callback(answer.set)
            front = closing.enter_context(contextlib.closing(Front(self.binaries, address, *flags)))
            front.wait_until_ready()
            listener = closing.enter_context(contextlib.closing(front.connection()))
            listener.request("GET", PATH)
            self.assertTrue(asked.wait(CALL_SECONDS))
            front.send_signal(signal.SIGTERM)
            self.assertRaises(http.client.RemoteDisconnected, listener.getresponse)
            yield front, answer

    def test_an_answer_that_comes_after_the_end_does_not_hold_it_up(self) -> None:
        with self.ended_while_asked() as (front, answer):
            answer.set()
            self.assertEqual(front.wait(CALL_SECONDS), 0, front.log())

    def test_a_second_signal_does_not_wait_for_the_daemon(self) -> None:
        with self.ended_while_asked() as (front, _):
            front.send_signal(signal.SIGTERM)
            self.assertEqual(front.wait(CALL_SECONDS), -signal.SIGTERM, front.log())


if __name__ == "__main__":
    main()
