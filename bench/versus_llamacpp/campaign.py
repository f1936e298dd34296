"""One run: prepares, measures cell by cell, turn by turn, writes the results."""

import os
import shlex
import subprocess

from tools.daemon import PackError
from tools.server_process import ServerError

from . import ROOT, Say, cgroup, disk, files, llama, machine, moed, picture, report
from .cells import DISKS, Cell, all_cells, best_settings, next_turn, quick_cells
from .options import GGUF, Options
from .results import FilePair, JournalError, Results, Turn
from .safetensors_folder import CheckpointError
from .turn import Bench, take_turn

SMALL_READ_AHEAD_KIB = 128
SMALLEST_FILE_BYTES = 2_000_000_000  # below, a limit leaves little beside what a program needs anyway
ERRORS = (cgroup.CgroupError, CheckpointError, JournalError, PackError, ServerError, OSError, subprocess.CalledProcessError)


def prepare(options: Options, read_ahead: disk.ReadAhead, say: Say) -> Bench:
    flags = shlex.split(options.moed_flags) + ([] if options.instructions == "native" else ["--backend", options.instructions])
    programs = moed.Programs(options.bin, options.cache, flags)
    llama_programs = llama.build(options.cache, options.instructions, say)
    if options.gguf:
        made = {GGUF: files.prepare_gguf(programs, options.gguf, options.files, say)}
    else:
        checkpoint = options.store_of or files.widened_demo(options.files, say)
        made = {format_: files.prepare(programs, checkpoint, options.files, format_, say) for format_ in options.formats}
    first = made[options.formats[0]]
    with open(options.text) as file:
        text = file.read()
    server = moed.Moed(programs, first.store, threads=1, context_tokens=640)
    try:
        tokens = server.tokenize(text)
    finally:
        server.stop()
    for path in (path for pair in made.values() for path in (pair.store, pair.gguf)):
        if disk.device_of(path) != read_ahead.device:
            raise OSError(f"{path} lies on another device than {options.files}")
    return Bench(programs, llama_programs, made, read_ahead, tokens)


def thread_counts() -> tuple[int, ...]:
    processors = len(os.sched_getaffinity(0))
    return (1, processors) if processors > 1 else (1,)


def choose_cells(options: Options, read_ahead: disk.ReadAhead, say: Say) -> list[Cell]:
    read_aheads = [SMALL_READ_AHEAD_KIB]
    if read_ahead.default_kib != SMALL_READ_AHEAD_KIB:
        read_aheads.append(read_ahead.default_kib)
        if not read_ahead.writable:
            say(f"the read-ahead cannot be changed (root?): only {read_ahead.default_kib} KiB is measured")
            read_aheads = read_aheads[1:]
    chosen = (
        quick_cells(options.formats[0], thread_counts(), read_aheads)
        if options.quick
        else all_cells(options.formats, thread_counts(), read_aheads)
    )
    if options.best_settings:
        chosen = best_settings(chosen, thread_counts())
    cells = [part for part in (cell.only(options.only) for cell in chosen) if part.contenders]
    if not cells:
        raise ServerError(f"--only {options.only}: no cell and contender has that in its name; --list names them")
    return cells


def command(options: Options) -> str:
    """What of the command line decides the results; where files lie does not."""
    words = [
        "python3",
        "bench/versus_llamacpp",
        *(["--quick"] if options.quick else [] if options.gguf else ["--formats", ",".join(options.formats)]),
        "--turns",
        str(options.turns),
    ]
    words += ["--best-settings"] if options.best_settings else []
    words += [] if options.instructions == "native" else ["--instructions", options.instructions]
    words += [f"--moed-flags={options.moed_flags}"] if options.moed_flags else []
    words += ["--gguf", os.path.basename(options.gguf)] if options.gguf else []
    return shlex.join(words + (["--store-of", os.path.basename(options.store_of)] if options.store_of else []))


def why_not(cell: Cell, bench: Bench) -> str | None:
    """The reason why the cell cannot be measured here, None if it can."""
    made = bench.files[cell.format]
    if cell.share is None:
        return None
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
    return None


def describe(results: Results, options: Options, bench: Bench, say: Say) -> None:
    """Another machine's results are not mixed with these."""
    here, noted = machine.describe(bench.read_ahead), results.machine
    if noted and (noted.cpu, noted.memory_bytes) != (here.cpu, here.memory_bytes):
        raise JournalError(f"{results.path} was made on another machine ({noted.cpu}); say --fresh or another --json")
    results.machine = here
    results.versions = {"llama.cpp": llama.version(bench.llama), "moed": f"build {bench.moed.fingerprint}"}
    results.command = command(options)
    for format_, made in bench.files.items():
        sizes = os.path.getsize(made.store), os.path.getsize(made.gguf)
        if results.take_files(format_, FilePair(made.store, sizes[0], made.gguf, sizes[1])):
            say(f"{format_}: measured with files of another size and measured again")
    forget_other_builds(results, bench.moed.fingerprint, say)
    results.save()


def forget_other_builds(results: Results, fingerprint: str, say: Say) -> None:
    """Turns of two builds, or of moed today and llama.cpp yesterday, are no comparison: the whole cell is measured again."""
    stale = {turn.cell for turn in results.turns if turn.build not in (None, fingerprint)}
    if stale:
        say(f"measured with another build of moed and measured again: {', '.join(sorted(stale))}")
        results.turns = [turn for turn in results.turns if turn.cell not in stale]


def turn_text(turn: Turn) -> str:
    if turn.failed is not None:
        return f"FAILED: {turn.failed[:150]}"
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
    return ", ".join(text.format(turn.metric(key)) for key, text in units if turn.metric(key) is not None)


def measure_cell(cell: Cell, options: Options, bench: Bench, results: Results, say: Say) -> None:
    for number in range(options.turns):
        rates = {contender: summary.median for contender, summary in results.summaries(cell.name, "decode").items()}
        for contender in next_turn(cell, number, rates, not (options.quick or options.best_settings)):
            if results.has(cell.name, contender.name, number):
                continue
            turn = take_turn(cell, contender, number, bench)
            results.add(turn)
            progress = f"turn {number + 1} of {options.turns}, {contender.name} [{turn.seconds:.0f} s]"
            say(f"  {cell.name}, {progress}: {turn_text(turn)}")


def ask_llama_bench(cell: Cell, bench: Bench, results: Results, say: Say) -> None:
    """The program's own benchmark beside what its server reached, so that nobody has to trust the client."""
    threads = thread_counts()[-1]
    name = f"{cell.format}, {threads} threads, repack"
    if cell.share is None and cell.protocol.sessions == 1 and name not in results.llama_bench:
        say(f"  llama-bench, {name}")
        results.llama_bench[name] = llama.bench(bench.llama, bench.files[cell.format].gguf, threads, repack=True)
        results.save()


def write(options: Options, results: Results, say: Say) -> None:
    text = report.markdown(results)
    drawn = os.path.splitext(options.json)[0] + ".png"
    picture.draw(results, drawn)
    with open(os.path.splitext(options.json)[0] + ".md", "w") as file:
        file.write(text)
    say(f"written: {options.json}, and .md and .png beside it")
    if options.write_docs:
        docs = os.path.join(ROOT, "docs")
        picture.draw(results, os.path.join(docs, "benchmarks.png"))
        report.write_docs(os.path.join(docs, "benchmarks.md"), text, os.path.join(docs, "benchmarks.png"))
        say(f"written: {docs}/benchmarks.md and benchmarks.png")
    print(text)


def run(options: Options, say: Say) -> None:
    if options.fresh and os.path.exists(options.json) and not options.report:
        os.remove(options.json)
    results = Results(options.json)
    if options.report:
        if not results.turns:
            raise JournalError(f"{options.json} has no results")
        write(options, results, say)
        return
    os.makedirs(options.files, exist_ok=True)
    read_ahead = disk.ReadAhead(disk.device_of(options.files), os.path.join(options.cache, "read_ahead_kb.old"))
    chosen = choose_cells(options, read_ahead, say)
    if options.list:
        for cell in chosen:
            for contender in cell.contenders:
                print(f"{cell.name}: {contender.name}")
        return
    bench = prepare(options, read_ahead, say)
    describe(results, options, bench, say)
    for cell in chosen:
        results.not_possible.pop(cell.name, None)
        reason = why_not(cell, bench)
        if reason:
            say(f"{cell.name}: not possible here: {reason}")
            results.not_possible[cell.name] = reason
            results.save()
            continue
        results.rates.append(machine.measure_rates(bench.files[cell.format].gguf, thread_counts()))
        say(f"{cell.name}: {report.rates_text(results.rates[-1:])}")
        measure_cell(cell, options, bench, results, say)
        ask_llama_bench(cell, bench, results, say)
    write(options, results, say)
