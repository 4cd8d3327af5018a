"""Compares Weft with DuckDB on TPC-H in one run: loading from Parquet, size on disk, the 22 queries.

    compare_duckdb.py --weft target/release/weft --scale 1 --data bench-data

Both get the same Parquet files, threads and memory limit, one after the other, each in a process of its
own. A cold run opens the database anew and finds nothing of it in memory: Weft reads past the system's
cache, DuckDB's file is dropped from it. A hot run follows the cold one. Answers are checked by Weft;
DuckDB's are compared with the reference by `answers.py`.
"""

import argparse
import json
import math
import multiprocessing
import os
import pathlib
import resource
import shutil
import statistics
import subprocess
import sys
import time

import duckdb

ROOT = pathlib.Path(__file__).resolve().parent.parent
TABLES = ["region", "nation", "supplier", "customer", "part", "partsupp", "orders", "lineitem"]


def weft(args: argparse.Namespace, database: pathlib.Path) -> list[dict]:
    """Loads and queries with Weft; its points."""
    command = [args.weft, "bench", "tpch", "--scale", f"{args.scale:g}", "--data", args.data]
    command += ["--db", database, "--threads", args.threads, "--memory-limit", args.memory_limit]
    command += ["--repeat", args.repeat, "--json"]
    done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit("weft failed")
    return [json.loads(line) for line in done.stdout.splitlines()]


def connect(path: pathlib.Path, args: argparse.Namespace) -> duckdb.DuckDBPyConnection:
    """An open DuckDB database with the settings of the comparison."""
    config = {"threads": str(args.threads), "memory_limit": args.memory_limit}
    db = duckdb.connect(str(path), config=config)
    db.execute("SET enable_progress_bar = false")
    return db


def forget(path: pathlib.Path) -> None:
    """Drops a file from the system's cache."""
    file = os.open(path, os.O_RDONLY)
    os.fsync(file)
    os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(file)


def warm(files: pathlib.Path) -> None:
    """Reads the Parquet files, so that both find them in the system's cache as far as it holds them."""
    for path in files.glob("*.parquet"):
        with open(path, "rb") as file:
            while file.read(1 << 24):
                pass


def duckdb_load(path: pathlib.Path, files: pathlib.Path, args: argparse.Namespace) -> dict:
    """Loads with DuckDB; time, size and memory."""
    warm(files)
    start = time.perf_counter()
    db = connect(path, args)
    db.execute((ROOT / "tests/tpch/schema.sql").read_text())
    for table in TABLES:
        db.execute(f"COPY {table} FROM '{files}/{table}.parquet'")
    db.execute("CHECKPOINT")
    db.close()
    seconds = time.perf_counter() - start
    return {"seconds": seconds, "bytes": path.stat().st_size, "rss": peak_rss()}


def duckdb_query(path: pathlib.Path, number: int, args: argparse.Namespace) -> dict:
    """Median cold and hot times of a query."""
    sql = (ROOT / f"tests/tpch/queries/q{number:02}.sql").read_text()
    cold, hot = [], []
    for _ in range(args.repeat):
        forget(path)
        db = connect(path, args)
        cold.append(timed(db, sql))
        if len(cold) == args.repeat:
            hot = [timed(db, sql) for _ in range(args.repeat)]
        db.close()
    return {"cold": statistics.median(cold), "hot": statistics.median(hot), "rss": peak_rss()}


def timed(db: duckdb.DuckDBPyConnection, sql: str) -> float:
    start = time.perf_counter()
    db.execute(sql).fetchall()
    return time.perf_counter() - start


def peak_rss() -> int:
    """Largest resident memory of this process, bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def in_process(function, *arguments):
    """Calls a function in a fresh process, so that its memory is its own."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(function, arguments)


def geomean(values: list[float]) -> float:
    return math.exp(sum(map(math.log, values)) / len(values))


def print_load(weft_points: list[dict], loaded: dict) -> None:
    load = next(point for point in weft_points if point["pattern"] == "load")
    size = load["bytes_on_disk"]
    print(f"\n{'':20}{'Weft':>12}{'DuckDB':>12}{'Weft/DuckDB':>14}")
    rows = [
        ("load s", load["seconds"], loaded["seconds"]),
        ("on disk MB", size / 1e6, loaded["bytes"] / 1e6),
        ("load peak RSS MB", load["resident_bytes_peak"] / 1e6, loaded["rss"] / 1e6),
    ]
    for name, ours, theirs in rows:
        print(f"{name:20}{ours:12.2f}{theirs:12.2f}{ours / theirs:13.2f}x")


def print_queries(ours: dict[str, dict[str, float]], theirs: dict[str, dict]) -> None:
    print(f"\n{'':8}{'cold s':>18}{'':>10}{'hot s':>18}")
    print(f"{'':8}{'Weft':>9}{'DuckDB':>9}{'ratio':>10}{'Weft':>9}{'DuckDB':>9}{'ratio':>10}")
    for query, found in theirs.items():
        print_line(query, ours[query], found)
    means = [{kind: geomean([side[q][kind] for q in theirs]) for kind in ("cold", "hot")} for side in (ours, theirs)]
    print_line("geomean", *means)


def print_line(name: str, ours: dict, theirs: dict) -> None:
    cells = ""
    for kind in ("cold", "hot"):
        ratio = ours[kind] / theirs[kind]
        cells += f"{ours[kind]:9.3f}{theirs[kind]:9.3f}{ratio:9.2f}x"
    print(f"{name:8}{cells}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--weft", default=ROOT / "target/release/weft", type=pathlib.Path)
    parser.add_argument("--scale", default=1.0, type=float)
    parser.add_argument("--data", default=pathlib.Path("bench-data"), type=pathlib.Path)
    parser.add_argument("--threads", default=2, type=int)
    parser.add_argument("--memory-limit", default="4GB")
    parser.add_argument("--repeat", default=3, type=int)
    parser.add_argument("--keep", action="store_true", help="keep the databases")
    args = parser.parse_args()

    files = args.data / f"tpch-sf{args.scale:g}"
    ours_path = args.data / f"compare-sf{args.scale:g}.weft"
    theirs_path = args.data / f"compare-sf{args.scale:g}.duckdb"
    shutil.rmtree(ours_path, ignore_errors=True)
    theirs_path.unlink(missing_ok=True)
    print(f"TPC-H scale {args.scale:g}, {args.threads} threads, {args.memory_limit}; DuckDB {duckdb.__version__}")

    warm(files)
    points = weft(args, ours_path)
    loaded = in_process(duckdb_load, theirs_path, files, args)
    ours: dict[str, dict[str, float]] = {}
    for point in points:
        if "cached" in point:
            kind = "hot" if point["cached"] else "cold"
            ours.setdefault(point["pattern"], {})[kind] = point["seconds"]
    theirs = {f"q{n:02}": in_process(duckdb_query, theirs_path, n, args) for n in range(1, 23)}
    print_load(points, loaded)
    print_queries(ours, theirs)
    if not args.keep:
        shutil.rmtree(ours_path, ignore_errors=True)
        theirs_path.unlink(missing_ok=True)


if __name__ == "__main__":
    main()
