"""Scalar functions in Python."""

import datetime
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pyarrow
import pyarrow.compute
import pytest
import weft
from weft import Connection


def test_values(con: Connection) -> None:
    con.create_function("plus_one", lambda x: x + 1, ["BIGINT"], "BIGINT")
    sql = "SELECT sum(plus_one(value)) FROM generate_series(1, 10000) AS g(value)"
    assert con.execute(sql).fetchone() == (sum(range(2, 10002)),)
    assert con.execute("SELECT plus_one(NULL), plus_one(1)").fetchone() == (None, 2)
    assert con.execute("SELECT plus_one(CAST('4' AS INTEGER))").fetchone() == (5,)
    with pytest.raises(weft.ProgrammingError):
        con.execute("SELECT plus_one('4')")


def test_annotations(con: Connection) -> None:
    def named(name: str, day: datetime.date, count: int | None) -> str:
        return f"{name} {day} {count}"

    con.create_function("named", named, null_handling="special")
    sql = "SELECT named('a', DATE '2020-01-01', NULL)"
    assert con.execute(sql).fetchone() == ("a 2020-01-01 None",)
    with pytest.raises(weft.InterfaceError):
        con.create_function("unknown", lambda x: x)


def test_arrays(con: Connection) -> None:
    def double(values: pyarrow.Array) -> pyarrow.Array:
        return pyarrow.compute.multiply(values, 2)

    con.create_function("double_of", double, [pyarrow.int64()], pyarrow.int64(), type="arrow")
    sql = "SELECT sum(double_of(value)) FROM generate_series(1, 100000) AS g(value)"
    assert con.execute(sql).fetchone() == (100_000 * 100_001,)


@pytest.mark.parametrize("engine", ["auto", "weft", "datafusion"])
def test_in_all_places(con: Connection, engine: str) -> None:
    con.execute(f"SET engine = '{engine}'")
    con.create_function("half", lambda x: x // 2, ["BIGINT"], "BIGINT")
    con.execute("CREATE TABLE t AS SELECT value AS a FROM generate_series(1, 1000) AS g(value)")
    for sql, answer in [
        ("SELECT count(*) FROM t WHERE half(a) = 3", 2),
        ("SELECT count(DISTINCT half(a)) FROM t", 501),
        ("SELECT count(*) FROM (SELECT half(a) AS h FROM t GROUP BY half(a)) AS g", 501),
        ("SELECT count(*) FROM t AS x JOIN t AS y ON half(x.a) = y.a", 999),
        ("SELECT half(a) FROM t ORDER BY half(a) DESC LIMIT 1", 500),
        ("SELECT max(half(a) + half(a + 1)) FROM t", 1000),
    ]:
        assert con.execute(sql).fetchone() == (answer,), sql


def test_errors(con: Connection) -> None:
    con.create_function("fails", lambda x: 1 // x, ["BIGINT"], "BIGINT")
    with pytest.raises(weft.DataError, match="ZeroDivisionError"):
        con.execute("SELECT fails(value) FROM generate_series(0, 3) AS g(value)").fetchall()
    con.create_function("wrong", lambda x: "text", ["BIGINT"], "BIGINT")
    with pytest.raises(weft.DataError, match="wrong"):
        con.execute("SELECT wrong(1)").fetchall()
    con.create_function("short", lambda x: x[:1], ["BIGINT"], "BIGINT", type="arrow")
    with pytest.raises(weft.DataError, match="short"):
        con.execute("SELECT short(value) FROM generate_series(0, 3) AS g(value)").fetchall()


def test_names(con: Connection) -> None:
    with pytest.raises(weft.ProgrammingError):
        con.create_function("sum", lambda x: x, ["BIGINT"], "BIGINT")
    con.create_function("f", lambda: 1, [], "BIGINT")
    con.create_function("f", lambda: 2, [], "BIGINT")
    assert con.execute("SELECT f()").fetchone() == (2,)
    con.remove_function("f")
    with pytest.raises(weft.ProgrammingError):
        con.execute("SELECT f()")
    with pytest.raises(weft.ProgrammingError):
        con.remove_function("f")
    with pytest.raises(weft.Error):
        con.create_function("g", lambda: 1, [], "NONSENSE")


def test_side_effects(con: Connection) -> None:
    calls = []
    con.create_function("call", lambda: calls.append(1) or len(calls), [], "BIGINT", side_effects=True)
    con.execute("SELECT call() FROM generate_series(1, 10)").fetchall()
    assert len(calls) == 10


def test_other_statements_go_on() -> None:
    with weft.connect(threads=1) as con:
        is_waiting, go = threading.Event(), threading.Event()

        def waits(x: int) -> int:
            is_waiting.set()
            go.wait(30)
            return x

        con.create_function("waits", waits)
        with ThreadPoolExecutor(1) as pool:
            slow = pool.submit(lambda: con.execute("SELECT waits(1)").fetchall())
            assert is_waiting.wait(30)
            assert con.execute("SELECT 2").fetchall() == [(2,)]
            go.set()
            assert slow.result(30) == [(1,)]


def test_a_function_may_query(con: Connection) -> None:
    con.execute("CREATE TABLE t AS SELECT 42 AS a")

    def asks(x: int) -> int:
        row = con.execute("SELECT a + ? FROM t", [x]).fetchone()
        assert row is not None
        return int(row[0])

    con.create_function("asks", asks)
    assert con.execute("SELECT asks(1)").fetchone() == (43,)


def test_cancelled_while_it_runs(con: Connection) -> None:
    con.create_function("slow", lambda x: time.sleep(0.001) or x, ["BIGINT"], "BIGINT")
    timer = threading.Timer(0.2, con.interrupt)
    timer.start()
    with pytest.raises(weft.QueryCancelledError):
        con.execute("SELECT sum(slow(value)) FROM generate_series(1, 100000) AS g(value)").fetchall()
    timer.join()


@pytest.mark.parametrize("engine", ["auto", "weft", "datafusion"])
def test_aggregates(con: Connection, engine: str) -> None:
    con.execute(f"SET engine = '{engine}'")
    con.create_aggregate("largest", lambda values: max(values), ["BIGINT"], "BIGINT")
    con.create_aggregate("pairs", lambda a, b: sum(x * y for x, y in zip(a, b, strict=True)), ["BIGINT", "BIGINT"], "BIGINT")
    con.create_aggregate("total", pyarrow.compute.sum, ["BIGINT"], "BIGINT", type="arrow")
    con.create_aggregate("rows_of", len, ["BIGINT"], "BIGINT", null_handling="special")
    con.execute("CREATE TABLE t AS SELECT value AS a, CASE WHEN value % 10 > 0 THEN value END AS b FROM generate_series(1, 20000) AS g(value)")
    for sql, answer in [
        ("SELECT largest(a), pairs(a, a), total(b), rows_of(b) FROM t",
         [(20000, sum(n * n for n in range(20001)), sum(n for n in range(20001) if n % 10), 20000)]),
        ("SELECT largest(a), total(a), rows_of(a) FROM t WHERE false", [(None, None, 0)]),
        ("SELECT a % 3 AS k, largest(a), total(b) = sum(b) FROM t GROUP BY 1 ORDER BY 1",
         [(0, 19998, True), (1, 19999, True), (2, 20000, True)]),
        ("SELECT largest(a) FILTER (WHERE a < 5), largest(a % 7) FROM t", [(4, 6)]),
        ("SELECT DISTINCT largest(a) OVER (PARTITION BY a % 2) AS m FROM t ORDER BY m", [(19999,), (20000,)]),
    ]:
        assert con.execute(sql).fetchall() == answer, sql
    with pytest.raises(weft.DataError, match="largest"):
        con.create_aggregate("largest", lambda values: 1 // 0, ["BIGINT"], "BIGINT")
        con.execute("SELECT largest(a) FROM t").fetchall()
    con.create_function("largest", lambda a: a, ["BIGINT"], "BIGINT")
    assert con.execute("SELECT largest(a) FROM t WHERE a = 3").fetchall() == [(3,)]


def test_the_interpreter_ends_while_a_function_runs() -> None:
    program = """
import threading, time, weft
con = weft.connect()
con.create_function("slow", lambda x: time.sleep(0.02) or x, ["BIGINT"], "BIGINT")
threading.Timer(0.2, con.interrupt).start()
try:
    con.execute("SELECT sum(slow(value)) FROM generate_series(1, 5000) AS g(value)").fetchall()
except weft.QueryCancelledError:
    print("cancelled")
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stdout) == (0, "cancelled\n"), ended.stderr
