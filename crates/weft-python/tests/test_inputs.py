"""Frames, tables and readers as relations."""

import datetime
from decimal import Decimal
from pathlib import Path

import numpy
import pandas
import polars
import pyarrow
import pyarrow.dataset
import pyarrow.parquet
import pytest
import weft
from weft import Connection


def test_variables_are_relations(con: Connection) -> None:
    arrow = pyarrow.table({"a": [1, 2, 3], "b": ["x", "y", None]})
    assert con.execute("SELECT sum(a), count(b) FROM arrow").fetchone() == (6, 2)
    frame = pandas.DataFrame({"a": [1.5, 2.5], "b": ["x", None]})
    assert con.execute("SELECT sum(a), count(b) FROM frame").fetchone() == (4.0, 1)
    polar = polars.DataFrame({"a": [1, 2], "b": ["x", "y"]})
    assert con.sql("SELECT a, b FROM polar ORDER BY a").fetchall() == [(1, "x"), (2, "y")]
    lazy = polar.lazy().filter(polars.col("a") > 1)
    assert con.execute("SELECT b FROM lazy").fetchall() == [("y",)]
    assert con.execute("SELECT count(*) FROM lazy").fetchall() == [(1,)]
    rows = [{"a": 1}, {"a": 2, "b": "z"}]
    assert con.execute("SELECT a, b FROM rows ORDER BY a").fetchall() == [(1, None), (2, "z")]
    array = numpy.array([(1, 2.0), (3, 4.0)], dtype=[("i", "i4"), ("f", "f8")])
    assert con.execute("SELECT sum(i), sum(f) FROM array").fetchone() == (4, 6.0)
    batch = pyarrow.record_batch({"a": [7]})
    assert con.execute("SELECT a FROM batch").fetchone() == (7,)
    relation = con.sql("SELECT 1 AS one")
    assert con.execute("SELECT one + 1 FROM relation").fetchone() == (2,)
    del arrow, frame, rows, array, batch, relation


def test_names_keep_their_case(con: Connection) -> None:
    Frame = pandas.DataFrame({"Value": [1]})  # noqa: N806
    assert con.execute('SELECT "Value" FROM Frame').fetchall() == [(1,)]
    assert con.execute('SELECT "Value" FROM "Frame"').fetchall() == [(1,)]
    del Frame


def test_comprehensions_see_variables(con: Connection) -> None:
    frame = pandas.DataFrame({"a": [1, 2]})
    found = [con.execute("SELECT sum(a) + ? FROM frame", [n]).fetchone() for n in range(2)]
    assert found == [(3,), (4,)]
    del frame


def test_tables_come_first(con: Connection) -> None:
    con.execute("CREATE TABLE frame AS SELECT 1 AS a")
    frame = pandas.DataFrame({"a": [2]})
    assert con.execute("SELECT a FROM frame").fetchall() == [(1,)]
    con.register("frame", frame)
    assert con.execute("SELECT a FROM frame").fetchall() == [(2,)]
    con.unregister("frame")
    assert con.execute("SELECT a FROM frame").fetchall() == [(1,)]


GLOBAL = pandas.DataFrame({"a": [5]})


def test_globals_are_relations(con: Connection) -> None:
    assert con.execute("SELECT a FROM GLOBAL").fetchall() == [(5,)]
    assert weft.sql("SELECT a FROM GLOBAL").fetchall() == [(5,)]


def test_other_variables_are_none(con: Connection) -> None:
    number = 5
    with pytest.raises(weft.ProgrammingError, match="number"):
        con.execute("SELECT * FROM number")
    del number


def test_names_of_queries_come_first(con: Connection) -> None:
    frame = pandas.DataFrame({"a": [2]})
    assert con.execute("WITH frame AS (SELECT 1 AS a) SELECT a FROM frame").fetchall() == [(1,)]
    del frame


def test_frames_in_joins_and_inserts(con: Connection) -> None:
    left = pandas.DataFrame({"k": range(1000), "v": range(1000)})
    right = polars.DataFrame({"k": list(range(0, 1000, 2)), "w": ["x"] * 500})
    sql = "SELECT count(*), sum(v) FROM left_ JOIN right_ USING (k)"
    con.register("left_", left).register("right_", right)
    assert con.execute(sql).fetchone() == (500, sum(range(0, 1000, 2)))
    con.execute("CREATE TABLE kept AS SELECT * FROM left_")
    con.execute("INSERT INTO kept SELECT k, 0 FROM right_")
    assert con.execute("SELECT count(*) FROM kept").fetchone() == (1500,)


def test_views_do_not_see_frames(con: Connection) -> None:
    frame = pandas.DataFrame({"a": [2]})
    with pytest.raises(weft.ProgrammingError):
        con.execute("CREATE VIEW v AS SELECT * FROM frame")
    con.register("frame", frame)
    with pytest.raises(weft.ProgrammingError):
        con.execute("CREATE VIEW v AS SELECT * FROM frame")


def test_readers_are_read_once(con: Connection) -> None:
    table = pyarrow.table({"a": range(100_000)})
    reader = table.to_reader(max_chunksize=1000)
    assert con.execute("SELECT sum(a) FROM reader").fetchone() == (sum(range(100_000)),)
    with pytest.raises(weft.DataError, match="once"):
        con.execute("SELECT sum(a) FROM reader").fetchone()


def test_readers_that_fail(con: Connection) -> None:
    def batches():  # type: ignore[no-untyped-def]  # noqa: ANN202
        yield pyarrow.record_batch({"a": [1]})
        raise ValueError("no more of this")

    reader = pyarrow.RecordBatchReader.from_batches(pyarrow.schema({"a": pyarrow.int64()}), batches())
    with pytest.raises(weft.DataError, match="no more of this"):
        con.execute("SELECT sum(a) FROM reader").fetchone()


def test_datasets(con: Connection, tmp_path: Path) -> None:
    for number in range(3):
        table = pyarrow.table({"a": range(10), "b": [number] * 10, "c": ["x"] * 10})
        pyarrow.parquet.write_table(table, tmp_path / f"{number}.parquet")
    data = pyarrow.dataset.dataset(tmp_path)
    for _ in range(2):
        assert con.execute("SELECT b, sum(a) FROM data GROUP BY b ORDER BY b").fetchall() == [
            (0, 45),
            (1, 45),
            (2, 45),
        ]
    assert con.execute("SELECT count(*) FROM data").fetchone() == (30,)
    assert con.execute("SELECT c, a FROM data WHERE b = 1 AND a = 3").fetchall() == [("x", 3)]


def test_types_of_arrow(con: Connection) -> None:
    values = {
        "i8": (pyarrow.int8(), 1),
        "u16": (pyarrow.uint16(), 2),
        "f16": (pyarrow.float16(), 0.5),
        "text": (pyarrow.string(), "a"),
        "large": (pyarrow.large_string(), "b"),
        "view": (pyarrow.string_view(), "c"),
        "bytes": (pyarrow.binary(), b"d"),
        "fixed": (pyarrow.binary(2), b"ef"),
        "category": (pyarrow.dictionary(pyarrow.int8(), pyarrow.string()), "g"),
        "date": (pyarrow.date32(), datetime.date(2020, 1, 1)),
        "time32": (pyarrow.time32("ms"), datetime.time(1, 2)),
        "ns": (pyarrow.timestamp("ns"), datetime.datetime(2020, 1, 1)),
        "span": (pyarrow.duration("us"), datetime.timedelta(seconds=5)),
        "d32": (pyarrow.decimal32(5, 2), Decimal("1.25")),
        "list": (pyarrow.list_(pyarrow.int32()), [1, 2]),
        "struct": (pyarrow.struct([("x", pyarrow.string())]), {"x": "y"}),
    }
    table = pyarrow.table({name: pyarrow.array([value, None], kind) for name, (kind, value) in values.items()})
    rows = con.register("table_", table).execute("SELECT * FROM table_").fetchall()
    assert rows[0] == tuple(value for _, value in values.values())
    assert rows[1] == (None,) * len(values)
    con.execute("CREATE TABLE kept AS SELECT * FROM table_")
    assert sorted(con.execute("SELECT * FROM kept").fetchall(), key=repr) == sorted(rows, key=repr)


def test_categories_of_pandas(con: Connection) -> None:
    frame = pandas.DataFrame({"c": pandas.Categorical(["a", "b", "a"]), "n": [1, 2, 3]})
    rows = con.execute("SELECT c, sum(n) FROM frame GROUP BY c ORDER BY c").fetchall()
    assert rows == [("a", 4), ("b", 2)]
    del frame


def test_append(con: Connection) -> None:
    con.execute("CREATE TABLE t (a INTEGER, b VARCHAR)")
    assert con.append("t", pandas.DataFrame({"a": [1], "b": ["x"]})) == 1
    assert con.append("t", polars.DataFrame({"b": ["y"], "a": [2]}), by_name=True) == 1
    assert con.execute("SELECT * FROM t ORDER BY a").fetchall() == [(1, "x"), (2, "y")]
    with pytest.raises(weft.Error):
        con.append("t", pandas.DataFrame({"a": [1]}))
    with pytest.raises(TypeError):
        con.append("t", 5)


def test_two_columns_of_one_name(con: Connection) -> None:
    table = pyarrow.Table.from_arrays([pyarrow.array([1]), pyarrow.array([2])], names=["a", "a"])
    with pytest.raises(weft.ProgrammingError, match="two columns"):
        con.register("t", table)


def test_large_tables_by_all_workers(con: Connection) -> None:
    n = 1_000_000
    table = pyarrow.table({"k": numpy.arange(n) % 1000, "v": numpy.ones(n)})
    con.register("big", table)
    rows = con.execute("SELECT k, sum(v) FROM big GROUP BY k").fetchall()
    assert len(rows) == 1000
    assert {total for _, total in rows} == {1000.0}


class Stream:
    """Has nothing but a stream, which can be read often."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        table = pyarrow.table({"a": [1, 2], "b": ["x", "y"]})
        return table.__arrow_c_stream__(requested_schema)


def test_streams(con: Connection) -> None:
    stream = Stream()
    for _ in range(2):
        assert con.execute("SELECT b, a FROM stream ORDER BY a").fetchall() == [("x", 1), ("y", 2)]
    assert con.execute("SELECT count(*) FROM stream").fetchone() == (2,)
    assert con.execute("SELECT x.a FROM stream AS x JOIN stream AS y ON x.a = y.a + 1").fetchall() == [(2,)]
    del stream
