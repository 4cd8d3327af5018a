"""Compares Weft with its peers on TPC-H in one run: loading from Parquet, size on disk, the 22 queries.

    run.py --weft-bench target/release/weft-bench --scale 10 --data bench-data [--engines duckdb,datafusion,hyper]

All get the same Parquet files, threads and memory limit (Hyper takes no limit), one after the other, each
in a process of its own and with a file in its own format (DataFusion reads the Parquet files). A cold run
opens the database anew and finds nothing of it in memory: Weft reads past the system's cache, the others'
files are dropped from it. Hot runs follow the last cold one. Times are medians. Weft checks its answers
against the reference; the others' must be the same as each other.
"""

import argparse
import decimal
import json
import math
import multiprocessing
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "bench"))

from compare.engines import ENGINES, limit_processors  # noqa: E402
from differential_compare import difference  # noqa: E402
from differential_engines import Answer  # noqa: E402

QUERIES = range(1, 23)

# Largest difference of numbers in answers, relative: some engines round averages to six decimals.
TOLERANCE = 1e-4


def run_weft(args: argparse.Namespace, database: pathlib.Path) -> dict:
    """Loads and queries with Weft."""
    command = [args.weft_bench, "tpch", "--scale", f"{args.scale:g}", "--data", args.data]
    command += ["--db", database, "--threads", args.threads, "--memory-limit", args.memory_limit]
    command += ["--repeat", args.repeat, "--json"]
    done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit("weft-bench failed")
    found = {"name": "Weft", "queries": {}}
    for point in map(json.loads, done.stdout.splitlines()):
        if point["pattern"] == "load":
            found["load"] = {
                "seconds": point["seconds"],
                "bytes": point["bytes_on_disk"],
                "rss": point["resident_bytes_peak"],
            }
        elif "cached" in point:
            kind = "hot" if point["cached"] else "cold"
            found["queries"].setdefault(int(point["pattern"][1:]), {})[kind] = point["seconds"]
    return found


def load_peer(name: str, arguments: tuple, parquet: pathlib.Path, threads: int) -> dict:
    """Loads with one of the others; time, size and memory."""
    limit_processors(threads)
    engine = ENGINES[name](*arguments)
    warm(parquet)
    start = time.perf_counter()
    engine.load(parquet, (ROOT / "tests/tpch/schema.sql").read_text())
    seconds = time.perf_counter() - start
    return {"seconds": seconds, "bytes": sum(file.stat().st_size for file in engine.files()), "rss": engine.peak_rss()}


def query_peer(name: str, arguments: tuple, number: int, args: argparse.Namespace) -> dict:
    """Median cold and hot times of a query, and its answer."""
    limit_processors(args.threads)
    engine = ENGINES[name](*arguments)
    sql = (ROOT / f"tests/tpch/queries/q{number:02}.sql").read_text()
    cold, hot = [], []
    try:
        for _ in range(args.repeat):
            drop_from_cache(engine.files())
            engine.open()
            rows = timed(engine, sql, cold)
            if len(cold) == args.repeat:
                for _ in range(args.repeat):
                    timed(engine, sql, hot)
            engine.close()
    except Exception as error:  # A query that an engine cannot run is a result.
        return {"error": f"{type(error).__name__}: {error}".splitlines()[0], "version": engine.version}
    return {
        "cold": statistics.median(cold),
        "hot": statistics.median(hot),
        "rows": rows,
        "version": engine.version,
    }


def timed(engine, sql: str, times: list[float]) -> list:
    start = time.perf_counter()
    rows = engine.rows(sql)
    times.append(time.perf_counter() - start)
    return rows


def drop_from_cache(paths: list[pathlib.Path]) -> None:
    """Drops files from the system's cache."""
    for path in paths:
        file = os.open(path, os.O_RDONLY)
        os.fsync(file)
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(file)


def warm(files: pathlib.Path) -> None:
    """Reads the Parquet files, so that all find them in the system's cache as far as it holds them."""
    for path in files.glob("*.parquet"):
        with open(path, "rb") as file:
            while file.read(1 << 24):
                pass


def in_process(function, *arguments):
    """Calls a function in a fresh process, so that its memory is its own."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(function, arguments)


def run_peer(name: str, args: argparse.Namespace) -> dict:
    arguments = (args.data, f"{args.scale:g}", args.threads, args.memory_limit)
    parquet = args.data / f"tpch-sf{args.scale:g}"
    loaded = in_process(load_peer, name, arguments, parquet, args.threads)
    queries = {}
    for number in QUERIES:
        queries[number] = found = in_process(query_peer, name, arguments, number, args)
        if "error" in found:
            print(f"{ENGINES[name].name}, query {number}: {found['error']}")
    if not args.keep:
        ENGINES[name](*arguments).forget()
    version = queries[1]["version"]
    return {"name": ENGINES[name].name, "version": version, "load": loaded, "queries": queries}


def check(peers: list[dict]) -> bool:
    """Whether all peers give the same answers; prints those that differ."""
    same = True
    for number in QUERIES:
        answers = [(peer["name"], peer["queries"][number].get("rows")) for peer in peers]
        answers = [(name, Answer(inexact(rows), None)) for name, rows in answers if rows is not None]
        for name, answer in answers[1:]:
            if found := difference(answers[0][1], answer, [], TOLERANCE):
                print(f"query {number}: {answers[0][0]} and {name} differ: {found}")
                same = False
    return same


def inexact(rows: list) -> list:
    """Rows whose decimals are floats: averages have digits as each engine likes."""
    return [tuple(float(value) if isinstance(value, decimal.Decimal) else value for value in row) for row in rows]


def geomean(values: list[float]) -> float:
    return math.exp(sum(map(math.log, values)) / len(values))


def print_table(title: str, rows: list[tuple[str, list]], names: list[str], digits: int) -> None:
    """Rows of a value for each engine, Weft's first, and Weft's as part of each other's."""
    print(f"\n{title:20}" + "".join(f"{name:>12}" for name in names) + "".join(f"{'/' + name:>12}" for name in names[1:]))
    for name, values in rows:
        cells = "".join(f"{'-' if value is None else format(value, f'.{digits}f'):>12}" for value in values)
        ratios = "".join(
            f"{'-' if value is None else format(values[0] / value, '.2f') + 'x':>12}" for value in values[1:]
        )
        print(f"{name:20}{cells}{ratios}")


def print_queries(kind: str, engines: list[dict], names: list[str]) -> None:
    times = {number: [engine["queries"][number].get(kind) for engine in engines] for number in QUERIES}
    rows = [(f"q{number:02}", values) for number, values in times.items()]
    whole = [values for values in times.values() if None not in values]
    columns = list(zip(*whole))
    rows.append(("geometric mean", [geomean(column) for column in columns]))
    rows.append(("sum", [sum(column) for column in columns]))
    print_table(f"{kind}, s", rows, names, 3)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--weft-bench", default=ROOT / "target/release/weft-bench", type=pathlib.Path)
    parser.add_argument("--scale", default=1.0, type=float)
    parser.add_argument("--data", default=pathlib.Path("bench-data"), type=pathlib.Path)
    parser.add_argument("--engines", default="duckdb,datafusion,hyper", help="the others, separated by commas")
    parser.add_argument("--threads", default=2, type=int)
    parser.add_argument("--memory-limit", default="8GB")
    parser.add_argument("--repeat", default=3, type=int)
    parser.add_argument("--keep", action="store_true", help="keep the databases")
    args = parser.parse_args()
    peers = args.engines.split(",")
    if unknown := [name for name in peers if name not in ENGINES]:
        sys.exit(f"unknown engines {', '.join(unknown)}: there are {', '.join(ENGINES)}")

    database = args.data / f"compare-sf{args.scale:g}.weft"
    shutil.rmtree(database, ignore_errors=True)
    print(f"TPC-H scale {args.scale:g}, {args.threads} threads, {args.memory_limit}", flush=True)
    warm(args.data / f"tpch-sf{args.scale:g}")
    engines = [run_weft(args, database)]
    engines += [run_peer(name, args) for name in peers]
    if not args.keep:
        shutil.rmtree(database, ignore_errors=True)
    print(", ".join(f"{engine['name']} {engine['version']}" for engine in engines[1:]))
    names = [engine["name"] for engine in engines]
    loads = [engine["load"] for engine in engines]
    rows = [
        ("load s", [load["seconds"] or None for load in loads]),
        ("on disk MB", [load["bytes"] / 1e6 for load in loads]),
        ("load peak RSS MB", [load["rss"] / 1e6 for load in loads]),
    ]
    print_table("", rows, names, 2)
    for kind in ("cold", "hot"):
        print_queries(kind, engines, names)
    if not check(engines[1:]):
        sys.exit("answers differ")


if __name__ == "__main__":
    main()
