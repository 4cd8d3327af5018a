"""Differential test: the same random data and queries in two engines, whose answers must be the same.

    differential.py --left target/debug/weft --right duckdb --minutes 10 --out found

An engine is `duckdb`, which runs in this process (package duckdb of PyPI; nothing else is needed beyond Python's own library), or the command of a Weft shell with its options, such
as `'target/debug/weft --set batch_size=16'`; two Weft commands compare one engine or setting with another.

Every round makes tables and queries from a seed that is printed: `--seed N --rounds 1` runs it again.
Rows are compared as multisets, in the order that ORDER BY asks for, floating point numbers with a
tolerance. A case that differs is made smaller while it goes on to differ, and written as a script to
`--out`. Exit code 1 says that some did. Queries that only one engine refuses are counted by message.
"""

import argparse
import collections
import pathlib
import random
import sys
import time

from differential_compare import difference
from differential_engines import Failure, engine
from differential_queries import Generator
from differential_reduce import reduce


class Case:
    """Tables and a query, run in both engines."""

    def __init__(self, left, right, tables, query):
        self.left, self.right, self.tables, self.query = left, right, tables, query

    def run(self):
        """What is wrong with it: a kind and a text, or nothing."""
        answers = [engine.run(self.tables, [self.query])[0] for engine in (self.left, self.right)]
        return judge(self.query, *answers)

    def with_query(self, query):
        return Case(self.left, self.right, self.tables, query)

    def with_tables(self, tables):
        return Case(self.left, self.right, tables, self.query)

    def script(self):
        """As SQL."""
        statements = [line for table in self.tables for line in table.statements()]
        return "\n".join(f"{line};" for line in statements + [self.query.sql()]) + "\n"


def judge(query, left, right):
    """Why two answers are not the same: (kind, text), or nothing.

    The kinds are `wrong` (other rows), `broken` (a crash, a hang, a bug admitted), `left` and `right`
    (only that one refuses) and `both`.
    """
    for answer in (left, right):
        if isinstance(answer, Failure) and answer.is_bug:
            return "broken", answer.message
    if isinstance(left, Failure) and isinstance(right, Failure):
        return "both", left.message
    if isinstance(left, Failure):
        return "left", left.message
    if isinstance(right, Failure):
        return "right", right.message
    text = difference(left, right, query.order)
    return ("wrong", text) if text else None


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--left", default="target/debug/weft", help="an engine")
    parser.add_argument("--right", default="duckdb", help="the engine to compare it with")
    parser.add_argument("--seed", type=int, help="of the first round; a fresh one without it")
    parser.add_argument("--rounds", type=int, help="how many; without a limit in time or number, 20")
    parser.add_argument("--minutes", type=float, help="how long")
    parser.add_argument("--queries", type=int, default=40, help="in each round")
    parser.add_argument("--rows", type=int, default=30, help="about how many rows a table has")
    parser.add_argument("--large", type=float, default=0.1, help="the part of the rounds with a table of more rows than a vector has")
    parser.add_argument("--windows", type=float, default=0.2, help="the part of the queries with window functions")
    parser.add_argument("--out", type=pathlib.Path, help="where scripts of what differs are written")
    parser.add_argument("--examples", type=int, default=3, help="how many refusals of a kind are shown")
    parser.add_argument("--tries", type=int, default=150, help="to make a case smaller; 0: leave it")
    return parser.parse_args()


def report(number, kind, text, case, seed, arguments):
    """Prints what differs, and writes it."""
    print(f"\n=== {kind}, seed {seed}\n{case.query.sql()}\n{text}", flush=True)
    if arguments.out:
        arguments.out.mkdir(parents=True, exist_ok=True)
        comment = "".join(f"-- {line}\n" for line in f"{kind}, seed {seed}\n{text}".split("\n"))
        (arguments.out / f"{seed}-{number}.sql").write_text(comment + case.script())


def main():
    arguments = parse_arguments()
    left, right = engine(arguments.left), engine(arguments.right)
    seed = arguments.seed if arguments.seed is not None else random.randrange(1 << 31)
    rounds = arguments.rounds or (None if arguments.minutes else 20)
    end = time.monotonic() + 60 * arguments.minutes if arguments.minutes else None
    counts, refusals, found = collections.Counter(), collections.defaultdict(list), 0
    print(f"seed {seed}", flush=True)
    number = 0
    while (rounds is None or number < rounds) and (end is None or time.monotonic() < end):
        generator = Generator(random.Random(seed + number), arguments.rows, arguments.windows, arguments.large)
        tables = generator.tables()
        queries = [generator.query() for _ in range(arguments.queries)]
        answers = zip(queries, left.run(tables, queries), right.run(tables, queries))
        for index, (query, of_left, of_right) in enumerate(answers):
            verdict = judge(query, of_left, of_right)
            counts[verdict[0] if verdict else "same"] += 1
            if verdict is None:
                continue
            case = Case(left, right, tables, query)
            kind, text = verdict
            if kind in ("left", "right"):
                refusals[kind, shorten(text)].append((seed + number, query.sql()))
            elif kind in ("wrong", "broken"):
                found += 1
                case, text = reduce(case, kind, text, arguments.tries)
                report(index, kind, text, case, seed + number, arguments)
        number += 1
    for (kind, message), examples in sorted(refusals.items(), key=lambda item: -len(item[1])):
        print(f"\n{len(examples)} refused by {kind} only: {message}")
        for example_seed, sql in sorted(examples, key=lambda item: len(item[1]))[: arguments.examples]:
            print(f"    seed {example_seed}: {sql}")
    print(f"\n{number} rounds, {sum(counts.values())} queries: " + ", ".join(f"{n} {k}" for k, n in counts.most_common()))
    sys.exit(1 if found else 0)


def shorten(message):
    """A message without its particulars."""
    line = message.split("\n")[0]
    return "".join("#" if char.isdigit() else char for char in line)[:70]


if __name__ == "__main__":
    main()
