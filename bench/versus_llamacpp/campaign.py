"""One run: prepares, measures cell by cell, turn by turn, writes the results."""
import os
import shlex
import subprocess
import time
from dataclasses import dataclass

import cgroup
import disk
import files
import llama
import machine
import moed
import picture
import report
import turn as turns
from cells import DISKS, all_cells, best_settings, next_turn, quick_cells
from process import ServerError
from results import Results
from safetensors_folder import CheckpointError

SMALL_READ_AHEAD_KIB = 128
SMALLEST_FILE_BYTES = 2_000_000_000  # below, a limit leaves little beside what a program needs anyway
ERRORS = (cgroup.CgroupError, CheckpointError, ServerError, OSError, subprocess.CalledProcessError)


@dataclass
class Bench:
    """What a turn needs."""
    moed: moed.Programs
    llama: str
    files: dict
    read_ahead: disk.ReadAhead
    text_tokens: list


def prepare(options, read_ahead, say):
    flags = shlex.split(options.moed_flags) + ([] if options.instructions == "native" else ["--backend", options.instructions])
    programs = moed.Programs(options.bin, options.cache, flags)
    llama_programs = llama.build(options.cache, options.instructions, say)
    checkpoint = options.store_of or files.widened_demo(options.files, say)
    made = {format_: files.prepare(programs, checkpoint, options.files, format_, say) for format_ in options.formats}
    first = made[options.formats[0]]
    with open(options.text) as file:
        text = file.read()
    with moed.running(programs, first.store, 1, context_tokens=640) as server:
        tokens = server.tokenize(text)
    for path in (path for pair in made.values() for path in (pair.store, pair.gguf)):
        if disk.device_of(path) != read_ahead.device:
            raise OSError(f"{path} lies on another device than {options.files}")
    return Bench(programs, llama_programs, made, read_ahead, tokens)


def thread_counts():
    processors = len(os.sched_getaffinity(0))
    return (1, processors) if processors > 1 else (1,)


def choose_cells(options, read_ahead, say):
    read_aheads = [SMALL_READ_AHEAD_KIB]
    if read_ahead.default_kib != SMALL_READ_AHEAD_KIB:
        read_aheads.append(read_ahead.default_kib)
        if not read_ahead.writable:
            say(f"the read-ahead cannot be changed (root?): only {read_ahead.default_kib} KiB is measured")
            read_aheads = read_aheads[1:]
    chosen = (quick_cells(thread_counts(), read_aheads) if options.quick
              else all_cells(options.formats, thread_counts(), read_aheads))
    if options.best_settings:
        chosen = best_settings(chosen, thread_counts())
    chosen = [part for part in (cell.only(options.only) for cell in chosen) if part.contenders]
    if not chosen:
        raise ServerError(f"--only {options.only}: no cell and contender has that in its name; --list names them")
    return chosen


def command(options):
    """What of the command line decides the results; where files lie does not."""
    words = ["python3", "bench/versus_llamacpp", *(["--quick"] if options.quick else ["--formats", ",".join(options.formats)]),
             "--turns", str(options.turns)]
    words += ["--best-settings"] if options.best_settings else []
    words += [] if options.instructions == "native" else ["--instructions", options.instructions]
    words += [f"--moed-flags={options.moed_flags}"] if options.moed_flags else []
    return shlex.join(words + (["--store-of", os.path.basename(options.store_of)] if options.store_of else []))


def why_not(cell, bench):
    """The reason why the cell cannot be measured here, None if it can."""
    made = bench.files[cell.format]
    if cell.share is None:
        return None
    if made.bytes < SMALLEST_FILE_BYTES:
        return f"the file has {made.bytes / 1e9:.2f} GB, limits need {SMALLEST_FILE_BYTES / 1e9:.0f}"
    try:
        with cgroup.group(limit_bytes=cell.limit_bytes(made.bytes), device=bench.read_ahead.device):
            pass
        if DISKS[cell.disk] is not None:
            disk.check_throttle(made.gguf, DISKS[cell.disk])
    except (cgroup.CgroupError, OSError) as error:
        return str(error)
    return None


def describe(results, options, bench, say):
    """Another machine's results are not mixed with these."""
    first = bench.files[options.formats[0]]
    here = machine.describe(first.gguf)
    noted = results.data["machine"]
    if noted and (noted["cpu"], noted["memory_bytes"]) != (here["cpu"], here["memory_bytes"]):
        raise ServerError(f"{results.path} was made on another machine ({noted['cpu']}); say --fresh or another --json")
    results.data["machine"] = {**here, "read_ahead_kib": bench.read_ahead.default_kib}
    results.data["versions"] = {"llama.cpp": llama.version(bench.llama), "moed": f"build {bench.moed.fingerprint}"}
    results.data["command"] = command(options)
    for format_, made in bench.files.items():
        results.data["files"][format_] = {"store": made.store, "store_bytes": os.path.getsize(made.store), "gguf": made.gguf,
                                          "gguf_bytes": os.path.getsize(made.gguf)}
    forget_other_builds(results, bench.moed.fingerprint, say)
    results.save()


def forget_other_builds(results, fingerprint, say):
    """Turns of two builds, or of moed today and llama.cpp yesterday, are no comparison: the whole cell is measured again."""
    stale = {record["cell"] for record in results.data["turns"] if record.get("build", fingerprint) != fingerprint}
    if stale:
        say(f"measured with another build of moed and measured again: {', '.join(sorted(stale))}")
        results.data["turns"] = [record for record in results.data["turns"] if record["cell"] not in stale]


def turn_text(record):
    if "failed" in record:
        return f"FAILED: {record['failed'][:150]}"
    units = (("decode", "decode {:.2f}/s"), ("prefill", "prefill {:.0f}/s"), ("first_token_seconds", "first token {:.2f} s"),
             ("sessions_different", "sessions {:.1f}/s"), ("sessions_same", "same text {:.1f}/s"), ("hit_ratio", "hits {:.0%}"),
             ("experts_in_cache", "cache holds {:.0%}"), ("read_bytes_per_second", "reads {:.3g} B/s"))
    return ", ".join(text.format(record[key]) for key, text in units if record.get(key) is not None)


def measure_cell(cell, options, bench, results, say):
    for turn in range(options.turns):
        for contender in next_turn(cell, turn, results.medians(cell.name, "decode"),
                                   not (options.quick or options.best_settings)):
            if results.has(cell.name, contender.name, turn):
                continue
            begin = time.monotonic()
            record = turns.take_turn(cell, contender, turn, bench)
            record["seconds"] = time.monotonic() - begin
            if contender.program == "moed":
                record["build"] = bench.moed.fingerprint
            results.add(record)
            say(f"  {cell.name}, turn {turn + 1} of {options.turns}, {contender.name} [{record['seconds']:.0f} s]: "
                f"{turn_text(record)}")


def ask_llama_bench(cell, bench, results, say):
    """The program's own benchmark beside what its server reached, so that nobody has to trust the client."""
    threads = thread_counts()[-1]
    name = f"{cell.format}, {threads} threads, repack"
    if cell.share is None and cell.protocol.sessions == 1 and name not in results.data["llama_bench"]:
        say(f"  llama-bench, {name}")
        results.data["llama_bench"][name] = llama.bench(bench.llama, bench.files[cell.format].gguf, threads, repack=True)
        results.save()


def write(options, results, say):
    text = report.markdown(results)
    drawn = os.path.splitext(options.json)[0] + ".png"
    picture.draw(results, drawn)
    with open(os.path.splitext(options.json)[0] + ".md", "w") as file:
        file.write(text)
    say(f"written: {options.json}, and .md and .png beside it")
    if options.write_docs:
        docs = os.path.join(files.ROOT, "docs")
        picture.draw(results, os.path.join(docs, "benchmarks.png"))
        report.write_docs(os.path.join(docs, "benchmarks.md"), text, os.path.join(docs, "benchmarks.png"))
        say(f"written: {docs}/benchmarks.md and benchmarks.png")
    print(text)


def run(options, say):
    if options.fresh and os.path.exists(options.json) and not options.report:
        os.remove(options.json)
    results = Results(options.json)
    if options.report:
        if not results.data["turns"]:
            raise ServerError(f"{options.json} has no results")
        return write(options, results, say)
    os.makedirs(options.files, exist_ok=True)
    read_ahead = disk.ReadAhead(disk.device_of(options.files), os.path.join(options.cache, "read_ahead_kb.old"))
    chosen = choose_cells(options, read_ahead, say)
    if options.list:
        for cell in chosen:
            for contender in cell.contenders:
                print(f"{cell.name}: {contender.name}")
        return None
    bench = prepare(options, read_ahead, say)
    describe(results, options, bench, say)
    for cell in chosen:
        results.data["not_possible"].pop(cell.name, None)
        reason = why_not(cell, bench)
        if reason:
            say(f"{cell.name}: not possible here: {reason}")
            results.data["not_possible"][cell.name] = reason
            results.save()
            continue
        results.data["rates"].append(machine.measure_rates(bench.files[cell.format].gguf, thread_counts()))
        say(f"{cell.name}: {report.rates_text(results.data['rates'][-1:])}")
        measure_cell(cell, options, bench, results, say)
        ask_llama_bench(cell, bench, results, say)
    return write(options, results, say)
