"""Compares Weft with DuckDB on operators whose state outgrows memory, at several memory limits, in one run.

    spill.py --weft target/release/weft --scale 10 --data bench-data [--cases aggregation,with_itself]

The databases are those that `run.py --keep` leaves. Every run is a process of its own that opens the database and finds
nothing of it in memory (see run.py), and its time counts from there. Engines take turns. Answers must be the same. An engine
that fails, or takes too long, has no time.

Before each run as much memory is touched and freed as the engine may have: below a virtual machine memory that nobody has used for a
while comes late, which whoever runs first would pay for.
"""

import argparse
import mmap
import multiprocessing
import os
import pathlib
import statistics
import subprocess
import sys
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "bench"))

from compare.engines import ENGINES, bytes_of, limit_processors  # noqa: E402
from compare.run import drop_from_cache  # noqa: E402

# The limits of each case: where everything fits, then what is less than the state.
CASES = {
    "aggregation": ["16GB", "1GB", "512MB"],
    "with_partsupp": ["16GB", "512MB"],
    "with_itself": ["16GB", "4GB", "1GB", "512MB"],
    "row_number": ["16GB", "1GB", "512MB"],
}


def allowed(limit: int) -> float:
    """Bytes of memory that Weft may have at a limit."""
    return limit * 1.05 + 64 * 2**20


def touch(count: int) -> None:
    """Has so many bytes of memory."""
    memory = mmap.mmap(-1, count, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory.madvise(mmap.MADV_HUGEPAGE)
    for at in range(0, count, mmap.PAGESIZE):
        memory[at] = 1


def warm_up(limit: str) -> None:
    """Touches and frees what an engine may have at a limit, half of the machine's memory at most."""
    half = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
    child = multiprocessing.Process(target=touch, args=(min(bytes_of(limit), half),))
    child.start()
    child.join()


def run_child(command: list[str], limit: str, seconds_max: float) -> dict:
    """Time, answer and memory of a process that prints a line of values."""
    warm_up(limit)
    start = time.perf_counter()
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    killer = threading.Timer(seconds_max, child.kill)
    killer.start()
    # Errors are short: they fit into the pipe.
    answer = child.stdout.read().strip()
    _, status, usage = os.wait4(child.pid, 0)
    seconds = time.perf_counter() - start
    killer.cancel()
    if status != 0:
        if os.WIFSIGNALED(status):
            return {"error": f"more than {seconds_max:g} s"}
        # Weft's message comes first, that of an exception last.
        lines = child.stderr.read().strip().splitlines() or ["failed"]
        return {"error": next((line for line in lines if line.startswith("Error")), lines[-1])}
    return {"seconds": seconds, "answer": answer, "rss": usage.ru_maxrss * 1024}


def weft(args: argparse.Namespace, sql: pathlib.Path, limit: str) -> dict:
    # No more threads than processors: nothing has to hold the process back.
    command = [args.weft, "--memory-limit", limit, "--threads", args.threads, "--mode", "list", "--no-header"]
    command += ["--no-init", "-f", sql, args.data / f"compare-sf{args.scale:g}.weft"]
    return run_child([str(word) for word in command], limit, args.seconds_max)


def duckdb(args: argparse.Namespace, sql: pathlib.Path, limit: str) -> dict:
    drop_from_cache(ENGINES["duckdb"](args.data, f"{args.scale:g}", args.threads, limit).files())
    command = [sys.executable, __file__, "--child", str(sql), "--memory-limit", limit]
    command += ["--data", str(args.data), "--scale", f"{args.scale:g}", "--threads", str(args.threads)]
    return run_child(command, limit, args.seconds_max)


def child(args: argparse.Namespace) -> None:
    """Runs a query in DuckDB and prints the row as Weft does."""
    limit_processors(args.threads)
    engine = ENGINES["duckdb"](args.data, f"{args.scale:g}", args.threads, args.memory_limit)
    engine.open()
    for row in engine.rows(args.child.read_text()):
        print("|".join(map(str, row)))


def measure(args: argparse.Namespace, case: str, limit: str) -> tuple[list[dict], bool]:
    """Both engines' median runs, Weft's first, and whether answers and memory are right."""
    sql = ROOT / f"tests/spill/{case}.sql"
    runs = [(weft(args, sql, limit), duckdb(args, sql, limit)) for _ in range(args.repeat)]
    medians, right = [], True
    for engine in zip(*runs):
        failed = [run for run in engine if "error" in run]
        medians.append(failed[0] if failed else {
            "seconds": statistics.median(run["seconds"] for run in engine),
            "answer": engine[0]["answer"],
            "rss": max(run["rss"] for run in engine),
        })
    answers = {run["answer"] for pair in runs for run in pair if "answer" in run}
    if len(answers) > 1:
        print(f"{case} at {limit}: answers differ: {answers}")
        right = False
    if medians[0].get("rss", 0) > allowed(bytes_of(limit)):
        print(f"{case} at {limit}: Weft had {medians[0]['rss'] / 2**20:.0f} MiB")
        right = False
    for name, run in zip(("Weft", "DuckDB"), medians):
        if "error" in run:
            print(f"{case} at {limit}: {name}: {run['error']}")
            right &= name != "Weft"
    return medians, right


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--weft", default=ROOT / "target/release/weft", type=pathlib.Path)
    parser.add_argument("--scale", default=1.0, type=float)
    parser.add_argument("--data", default=pathlib.Path("bench-data"), type=pathlib.Path)
    parser.add_argument("--cases", default=",".join(CASES), help="of " + ", ".join(CASES))
    parser.add_argument("--threads", default=2, type=int)
    parser.add_argument("--repeat", default=1, type=int)
    parser.add_argument("--seconds-max", default=300.0, type=float, help="of a run, after which it is stopped")
    parser.add_argument("--child", type=pathlib.Path, help=argparse.SUPPRESS)
    parser.add_argument("--memory-limit", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        return child(args)
    cases = args.cases.split(",")
    if unknown := [case for case in cases if case not in CASES]:
        sys.exit(f"unknown cases {', '.join(unknown)}: there are {', '.join(CASES)}")
    limit_processors(args.threads)

    print(f"scale {args.scale:g}, {args.threads} threads, seconds; x: of the time with the first limit")
    print(f"{'case':16}{'limit':>8}{'Weft':>9}{'x':>7}{'RSS MiB':>9}{'DuckDB':>9}{'x':>7}{'RSS MiB':>9}{'Weft/DuckDB':>13}")
    all_right = True
    for case in cases:
        first = None
        for limit in CASES[case]:
            runs, right = measure(args, case, limit)
            all_right &= right
            first = first or runs
            cells = ""
            for run, unlimited in zip(runs, first):
                seconds, whole = run.get("seconds"), unlimited.get("seconds")
                cells += f"{seconds:9.2f}" if seconds else f"{'-':>9}"
                cells += f"{seconds / whole:7.2f}" if seconds and whole else f"{'-':>7}"
                cells += f"{run['rss'] / 2**20:9.0f}" if seconds else f"{'-':>9}"
            both = [run.get("seconds") for run in runs]
            cells += f"{both[0] / both[1]:13.2f}" if all(both) else f"{'-':>13}"
            print(f"{case:16}{limit:>8}{cells}", flush=True)
    if not all_right:
        sys.exit("wrong answers, failures, or too much memory")


if __name__ == "__main__":
    main()
