"""Hours of mixed load on the real daemon, in as many parts as one likes. Each run goes on where the folder's last one ended.

    python3 -m tests.chaos.soak --state FOLDER --hours 2 [--trace FILE.csv|.jsonl[.xz]]
    python3 -m tests.chaos.soak_report --state FOLDER --plot soak.png

It watches memory, descriptors, threads and metrics all the time. Each minute the load pauses until nothing runs; then a request
of reference has to have the bits that it had at first. SIGINT and SIGTERM end a part. It ends with 1 where something was not as
promised, and says what. FOLDER/journal.jsonl has a line for each sample."""

import argparse
import contextlib
import json
import os
import pathlib
import random
import resource
import signal
import sys
import threading
import time
from collections.abc import Iterator
from concurrent import futures
from typing import Any

from tests.chaos import arrivals, protocol
from tests.chaos.soak_load import TENANTS, Load, bearer, token_of
from tests.chaos.soak_watch import Watch
from tests.tokens import write_tokens
from tools.daemon import DEFAULT_BINARIES, Daemon, PackError, pack_demo, running
from tools.server_process import ServerError, wait_until

MIB = 1 << 20
BUDGET = 16 * MIB
ALLOWANCE = 64 * MIB
SAMPLE_SECONDS, CALM_SECONDS, MODEL_SECONDS = 5, 60, 420
AT_ONCE = 24  # calls of clients; what comes while so many run is left out
WAIT_SECONDS = 300
FLAGS = ("--memory-budget", BUDGET, "--kv-budget", "3MiB", "--threads", 1, "--max-running", 4, "--queue-capacity", 32)
KEPT_AFTER_CALM = 8  # descriptors
POOLED = 4 * (os.cpu_count() or 1) + 8  # threads that gRPC keeps once it had work for them


class State:
    """What one part hands to the next."""

    def __init__(self, folder: pathlib.Path):
        self._file = folder / "state.json"
        self._journal = (folder / "journal.jsonl").open("a")
        self.elapsed = 0.0
        self.arrivals = 0
        self.parts = 0
        self.left_out = 0
        self.references: dict[str, Any] = {}
        self.outcomes: dict[str, int] = {}
        self.faults: list[str] = []
        if self._file.exists():
            self.__dict__.update(json.loads(self._file.read_text()))

    def write(self) -> None:
        kept = {name: value for name, value in self.__dict__.items() if not name.startswith("_")}
        partial = self._file.with_suffix(".partial")
        partial.write_text(json.dumps(kept))
        partial.rename(self._file)

    def log(self, row: dict[str, Any]) -> None:
        self._journal.write(json.dumps(row) + "\n")
        self._journal.flush()


class Soak:
    """One part: a daemon, its load and its watch."""

    def __init__(self, daemon: Daemon, state: State, stores: list[pathlib.Path]):
        self._daemon = daemon
        self._state = state
        self._stores = stores
        self._store = 0
        self._load = Load(daemon)
        self._watch = Watch(daemon, BUDGET + ALLOWANCE)
        self._calm: dict[str, int] = {}
        self._began = time.monotonic()
        self._before = state.elapsed
        state.parts += 1

    def close(self) -> None:
        self._load.close()

    def _now(self) -> float:
        return time.monotonic() - self._began

    def run(self, coming: Iterator[arrivals.Arrival], seconds: float, stop: threading.Event) -> None:
        self._pause([])
        next_sample, next_calm, next_model = float(SAMPLE_SECONDS), float(CALM_SECONDS), float(MODEL_SECONDS)
        with futures.ThreadPoolExecutor(AT_ONCE) as pool:
            running: list[futures.Future[None]] = []
            due = self._now()
            while self._now() < seconds and not stop.is_set():
                self._daemon.check()
                arrival = next(coming)
                due += arrival.gap
                while (left := min(due, seconds) - self._now()) > 0 and not stop.wait(min(left, 1)):
                    if self._now() >= next_sample:
                        next_sample = self._now() + SAMPLE_SECONDS
                        self._sample()
                running = [call for call in running if not call.done()]
                if len(running) < AT_ONCE:
                    running.append(pool.submit(self._load.meet, arrival, random.Random(self._state.arrivals)))
                else:
                    self._state.left_out += 1
                self._state.arrivals += 1
                if self._now() >= next_model:
                    next_model = self._now() + MODEL_SECONDS
                    self._change_model()
                if self._now() >= next_calm:
                    self._pause(running)
                    due, next_calm = self._now(), self._now() + CALM_SECONDS
            self._pause(running)

    def _control(self, *arguments: object) -> dict[str, Any]:
        return self._daemon.json(*arguments)

    def _change_model(self) -> None:
        self._store = 1 - self._store
        load = self._daemon.moectl("load", self._stores[self._store], "--replace", "--drain-seconds", 1, check=False)
        if load.returncode != 0:
            self._watch.fault("load", load.stderr)

    def _reference(self) -> list[Any]:
        pb = protocol.inference
        request = pb.GenerateRequest(
            text="Once upon a time there was a little",
            sampling=pb.Sampling(temperature=0),
            stopping=pb.Stopping(max_new_tokens=32, ignore_eos=True),
            response=pb.ResponseOptions(logprobs=True),
        )
        answer = self._load.stub("alice").Generate(request, timeout=WAIT_SECONDS, metadata=bearer("alice"))
        return [[token.token_id, token.logprob] for token in answer.logprobs]

    def _pause(self, running: list[futures.Future[None]]) -> None:
        """Until nobody asks for anything and what was opened is closed. The state is written."""
        futures.wait(running)

        def idle() -> bool:
            stats = self._control("stats")["stats"]
            return not int(stats.get("running", 0)) and not int(stats.get("waiting", 0))

        wait_until(idle, "every request to end", WAIT_SECONDS)
        name, bits = self._stores[self._store].name, self._reference()
        if self._state.references.setdefault(name, bits) != bits:
            self._watch.fault("bits", f"{name}: other bits than at first")
        if self._calm:
            for what, most in (("descriptors", KEPT_AFTER_CALM), ("threads", POOLED)):
                self._settle(what, self._calm[what] + most)
        calm = self._sample(calm=True)
        self._calm = self._calm or calm
        self._keep()

    def _settle(self, what: str, most: int) -> None:
        count = getattr(self._watch, what)
        try:
            wait_until(lambda: count() <= most, what, 60)
        except ServerError:
            self._watch.fault(what, f"{count()} {what} with nobody there, of at most {most}")

    def _sample(self, calm: bool = False) -> dict[str, int]:
        row = self._watch.sample()
        self._state.log({"seconds": round(self._before + self._now(), 1), "part": self._state.parts, "calm": calm, **row})
        return row

    def _keep(self) -> None:
        state = self._state
        state.elapsed = self._before + self._now()
        for what, times in self._load.take_outcomes().items():
            state.outcomes[what] = state.outcomes.get(what, 0) + times
        for words in (*self._watch.take_faults(), *self._load.take_unwell()):
            state.faults.append(f"{state.elapsed:.0f} s: {words}")
            print(state.faults[-1], file=sys.stderr, flush=True)
        state.write()


def prepare(folder: pathlib.Path, binaries: pathlib.Path) -> list[pathlib.Path]:
    """Two stores; protocol and tokens are there."""
    models = folder / "models"
    models.mkdir(parents=True, exist_ok=True)
    (folder / "spill").mkdir(exist_ok=True)
    protocol.load(folder / "stubs")
    tenants = [(name, "infer", token_of(name), *limits) for name, limits in TENANTS.items()]
    write_tokens(folder / "tokens", *tenants, ("operator", "observe,control", token_of("operator")))
    stores = [models / "q4-q8.moed", models / "q8-q8.moed"]
    for store in stores:
        if not store.exists():
            pack_demo(binaries, models, *store.stem.split("-"))
    return stores


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--state", type=pathlib.Path, required=True, help="a folder for state, journal and stores")
    parser.add_argument("--hours", type=float, required=True, help="of all parts together")
    parser.add_argument("--trace", type=pathlib.Path, help="arrivals and lengths [drawn: a Poisson process]")
    parser.add_argument("--rate", type=float, default=2, help="arrivals a second on average [2]")
    parser.add_argument("--bin", type=pathlib.Path, default=DEFAULT_BINARIES, help="of moed and moectl [the release build's]")
    options = parser.parse_args()
    if not options.hours > 0 or not options.rate > 0:
        parser.error("--hours and --rate are more than 0")
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    try:
        trace = arrivals.read_trace(options.trace) if options.trace else arrivals.poisson(1)
        stores = prepare(options.state.resolve(), options.bin)
    except (arrivals.TraceError, PackError) as error:
        parser.error(str(error))
    folder, state = options.state.resolve(), State(options.state.resolve())
    own = ("--store", stores[0], "--models-folder", stores[0].parent, "--tokens", folder / "tokens")
    kept = ("--request-log", folder / "requests.jsonl")
    spill = ("--kv-spill", folder / "spill", "--kv-spill-budget", "16MiB")
    environment = {"MOECTL_TOKEN": token_of("operator")}
    os.environ.update(environment)
    with running(options.bin, *own, *kept, *spill, *FLAGS) as daemon, contextlib.closing(Soak(daemon, state, stores)) as soak:
        try:
            soak.run(arrivals.endless(trace, options.rate, state.arrivals), options.hours * 3600 - state.elapsed, stop)
            if (code := daemon.stop()) != 0:
                raise ServerError(f"ended with {code}: {daemon.log()[-2000:]}")
        except ServerError as error:
            state.faults.append(str(error))
            print(error, file=sys.stderr)
            state.write()
    return 1 if state.faults else 0


if __name__ == "__main__":
    sys.exit(main())
