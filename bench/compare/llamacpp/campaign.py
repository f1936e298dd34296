"""One run: prepares, measures cell by cell, turn by turn, writes the results."""

import os
import shlex
from functools import partial
from typing import Any

from .. import ROOT, CompareError, Say, cgroup, disk
from ..journal import Figures, Journal, Key, Record
from ..moed import Moed, check_program, fingerprint
from ..runner import Runner, Unit
from . import files, llama, machine, picture, report
from .cells import DISKS, Cell, all_cells, best_settings, next_turn, quick_cells, tried_read_aheads
from .options import GGUF, Options
from .turn import Bench, take_turn

SMALLEST_FILE_BYTES = 2_000_000_000  # below, a limit leaves little beside what a program needs anyway
OTHER_SECONDS = 30  # of a turn, about, beside its decode request


def prepare(options: Options, read_ahead: disk.ReadAhead, say: Say) -> Bench:
    moed, _ = (check_program(os.path.join(options.bin, name), "--bin") for name in ("moed", "moed-pack"))
    flags = shlex.split(options.moed_flags) + ([] if options.instructions == "native" else ["--backend", options.instructions])
    llama_programs = llama.build(options.cache, options.instructions, say)
    if options.gguf:
        made = {GGUF: files.prepare_gguf(options.bin, options.gguf, options.files, say)}
    else:
        checkpoint = options.store_of or files.widened_demo(options.files, say)
        made = {name: files.prepare(options.bin, checkpoint, options.files, name, options.coded, say) for name in options.formats}
    with open(options.text) as file:
        text = file.read()
    with Moed(moed, ["--store", made[options.formats[0]].store, "--threads", "1", "--max-context", "640"]) as server:
        tokens = server.tokenize(text)
    for path in (path for pair in made.values() for path in (pair.store, pair.gguf)):
        if disk.device_of(path) != read_ahead.device:
            raise OSError(f"{path} lies on another device than {options.files}")
    return Bench(moed, flags, llama_programs, made, read_ahead, tokens)


def thread_counts() -> tuple[int, ...]:
    processors = len(os.sched_getaffinity(0))
    return (1, processors) if processors > 1 else (1,)


def choose_cells(options: Options, read_ahead: disk.ReadAhead, say: Say) -> list[Cell]:
    if not read_ahead.writable:
        say(f"the read-ahead cannot be changed (root?): only {read_ahead.default_kib} KiB is measured")
    read_aheads = tried_read_aheads(read_ahead.default_kib, read_ahead.writable)
    cells = (quick_cells if options.quick else all_cells)(options.formats, thread_counts(), read_aheads)
    if options.best_settings:
        cells = best_settings(cells, thread_counts())
    chosen = [part for part in (cell.only(options.only) for cell in cells) if part.contenders]
    if not chosen:
        raise CompareError(f"--only {options.only}: no cell and contender has that in its name; --list names them")
    return chosen


def command(options: Options) -> str:
    """What of the command line decides the results; where files lie does not."""
    words = ["python3", "bench/compare", "llamacpp"]
    words += ["--quick"] if options.quick else [] if options.gguf else ["--formats", ",".join(options.formats)]
    words += ["--turns", str(options.turns), *(["--best-settings"] if options.best_settings else [])]
    words += [] if options.instructions == "native" else ["--instructions", options.instructions]
    words += [f"--moed-flags={options.moed_flags}"] if options.moed_flags else []
    words += [] if options.coded is None else ["--coded", str(options.coded)]
    words += ["--gguf", os.path.basename(options.gguf)] if options.gguf else []
    return shlex.join(words + (["--store-of", os.path.basename(options.store_of)] if options.store_of else []))


def why_not(cell: Cell, bench: Bench) -> str:
    """The reason why the cell cannot be measured here; "" if it can."""
    made = bench.files[cell.format]
    if cell.share is None:
        return ""
    if made.bytes < SMALLEST_FILE_BYTES:
        return f"the file has {made.bytes / 1e9:.2f} GB, limits need {SMALLEST_FILE_BYTES / 1e9:.0f}"
    try:
        with cgroup.group(limit_bytes=cell.limit_bytes(made.bytes), device=bench.read_ahead.device):
            pass
        limit = DISKS[cell.disk]
        if limit is not None:
            disk.check_throttle(made.gguf, limit)
    except (cgroup.CgroupError, OSError) as error:
        return str(error)
    return ""


def describe(options: Options, bench: Bench) -> dict[str, Any]:
    """A journal goes on only where all of this is the same: turns of two builds or machines are no comparison."""
    checkpoint = options.gguf or options.store_of or f"the demo model widened by {files.WIDEN_FACTOR}"
    return {
        **machine.describe(bench.read_ahead),
        "llama.cpp": llama.version(bench.llama),
        "moed": f"build {fingerprint(bench.moed)}",
        "moed_flags": " ".join(bench.moed_flags),
        "instructions": options.instructions,
        "checkpoint": os.path.basename(checkpoint),
        "text_tokens": len(bench.text_tokens),
    }


def note_files(journal: Journal, bench: Bench) -> None:
    for format_, made in bench.files.items():
        key = Key("files", format_, "")
        names = {"store": os.path.basename(made.store), "gguf": os.path.basename(made.gguf)}
        record = Record(key, {"store_bytes": os.path.getsize(made.store), "gguf_bytes": os.path.getsize(made.gguf)}, names)
        noted = journal.find(key)
        if noted is None:
            journal.add(record)
        elif noted != record:
            raise CompareError(f"{journal.path} was made with other files of {format_}; say --fresh or another --journal")


def turn_text(record: Record) -> str:
    units = (
        ("decode", "decode {:.2f}/s"),
        ("prefill", "prefill {:.0f}/s"),
        ("first_token_seconds", "first token {:.2f} s"),
        ("sessions_different", "sessions {:.1f}/s"),
        ("sessions_same", "same text {:.1f}/s"),
        ("hit_ratio", "hits {:.0%}"),
        ("experts_in_cache", "cache holds {:.0%}"),
        ("read_bytes_per_second", "reads {:.3g} B/s"),
    )
    return ", ".join(text.format(record.figures[key]) for key, text in units if key in record.figures)


def measure_cell(cell: Cell, options: Options, bench: Bench, journal: Journal, runner: Runner) -> None:
    for turn in range(options.turns):
        rates = {name: found.median for name, found in report.summaries(journal, cell.name, "decode").items()}
        contenders = next_turn(cell, turn, rates, not (options.quick or options.best_settings))
        seconds = OTHER_SECONDS + cell.protocol.decode_seconds
        runner.run(
            [
                Unit(Key("speed", cell.name, one.name, turn), partial(take_turn, cell, one, turn, bench), seconds)
                for one in contenders
            ]
        )
    if cell.share is None and cell.protocol.sessions == 1:
        # The program's own benchmark beside what its server reached, so that nobody has to trust the client.
        threads = thread_counts()[-1]

        def ask() -> Figures:
            return llama.bench(bench.llama, bench.files[cell.format].gguf, threads, repack=True)

        runner.run([Unit(Key("llama-bench", cell.format, f"{threads} threads, repack"), ask, OTHER_SECONDS)])


def write(options: Options, journal: Journal, say: Say) -> None:
    text, beside = report.markdown(journal), os.path.splitext(options.journal)[0]
    picture.draw(journal, f"{beside}.png")
    with open(f"{beside}.md", "w") as file:
        file.write(text)
    say(f"written: {beside}.md and .png")
    if options.write_docs:
        docs = os.path.join(ROOT, "docs", "benchmarks")
        picture.draw(journal, f"{docs}.png")
        report.write_docs(f"{docs}.md", text, f"{docs}.png")
        say(f"written: {docs}.md and .png")
    print(text)


def run(options: Options, say: Say) -> None:
    if options.report:
        write(options, Journal(options.journal, None), say)
        return
    os.makedirs(options.files, exist_ok=True)
    read_ahead = disk.ReadAhead(disk.device_of(options.files), os.path.join(options.cache, "read_ahead_kb.old"))
    chosen = choose_cells(options, read_ahead, say)
    if options.list:
        print("\n".join(f"{cell.name}: {contender.name}" for cell in chosen for contender in cell.contenders))
        return
    bench = prepare(options, read_ahead, say)
    if options.fresh and os.path.exists(options.journal):
        os.remove(options.journal)
    journal = Journal(options.journal, describe(options, bench))
    note_files(journal, bench)
    runner = Runner(journal, say, turn_text)
    for cell in chosen:
        reason = why_not(cell, bench)
        rates = {} if reason else machine.measure_rates(bench.files[cell.format].gguf, thread_counts())
        seen = len(journal.records("cell", cell.name))
        journal.add(Record(Key("cell", cell.name, "", seen), rates, {"command": command(options)}, reason))
        say(f"{cell.name}: " + (f"not possible here: {reason}" if reason else report.rates_text([rates])))
        if not reason:
            measure_cell(cell, options, bench, journal, runner)
    write(options, journal, say)
