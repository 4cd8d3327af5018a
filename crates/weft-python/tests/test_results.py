"""Results as frames, tables, arrays and streams."""

import gc
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal

import numpy
import polars
import pyarrow
import pytest
import weft
from weft import Connection

NUMBERS = "SELECT value AS n, CAST(value AS VARCHAR) AS s FROM generate_series(1, 100000) AS g(value) ORDER BY 1"


def test_a_result_is_read_as_often_as_one_likes(con: Connection) -> None:
    result = con.execute(NUMBERS)
    assert result.fetchone() == (1, "1")
    table = result.arrow()
    assert table.num_rows == 100_000
    assert result.arrow().equals(table)
    assert result.pl().height == 100_000
    assert result.df().shape == (100_000, 2)
    assert result.record_batch_reader().read_all().num_rows == 100_000
    assert next(result.rows()) == (1, "1")
    assert result.fetchone() == (2, "2")


def test_it_is_computed_once(con: Connection) -> None:
    result = con.sql("SELECT random() AS r FROM generate_series(1, 10)")
    first = result.arrow()
    assert result.arrow().equals(first)
    assert result.fetchall() == [(value,) for value in first.column("r").to_pylist()]


def test_frames(con: Connection) -> None:
    result = con.sql(
        "SELECT * FROM (VALUES (1, 'a', 1.5, DATE '2020-01-01', true), (NULL, NULL, NULL, NULL, NULL))"
        " AS t(i, s, d, day, b)"
    )
    frame = result.df()
    assert list(frame.columns) == ["i", "s", "d", "day", "b"]
    assert frame["d"].dtype == numpy.float64
    assert frame["day"].dtype.kind == "M"
    assert frame["s"].isna().tolist() == [False, True]
    assert result.df(decimals="object")["d"][0] == Decimal("1.5")
    assert result.df(decimals="arrow")["d"][0] == Decimal("1.5")
    assert result.pl()["s"].to_list() == ["a", None]


def test_arrays(con: Connection) -> None:
    arrays = con.sql(
        "SELECT * FROM (VALUES (1, 'a', true, 2.5), (3, NULL, NULL, NULL)) AS t(i, s, b, d)"
    ).numpy()
    assert arrays["i"].tolist() == [1, 3]
    assert isinstance(arrays["b"], numpy.ma.MaskedArray)
    assert arrays["b"].tolist() == [True, None]
    assert arrays["s"].tolist() == ["a", None]
    assert arrays["d"].tolist() == [2.5, None]


def test_streams(con: Connection) -> None:
    result = con.execute(NUMBERS)
    assert pyarrow.table(result).num_rows == 100_000
    assert polars.DataFrame(result).height == 100_000
    assert sum(batch.num_rows for batch in result.record_batch_reader()) == 100_000
    assert pyarrow.schema(result).names == ["n", "s"]
    assert sum(pyarrow.record_batch(batch).num_rows for batch in result.batches()) == 100_000


def test_buffers_outlive_the_connection() -> None:
    con = weft.connect()
    table = con.execute(NUMBERS).arrow()
    con.close()
    del con
    gc.collect()
    assert table.column("n").to_pylist()[-1] == 100_000


def test_nothing_is_kept(con: Connection) -> None:
    result = con.execute(NUMBERS, keep=False)
    assert sum(batch.num_rows for batch in result.record_batch_reader()) == 100_000
    with pytest.raises(weft.ProgrammingError, match="read before"):
        result.arrow()


def test_results_may_be_larger_than_memory() -> None:
    with weft.connect(memory_limit="32MiB", threads=2) as con:
        result = con.execute("SELECT value, value * 2 AS b FROM generate_series(1, 3000000) AS g(value)")
        rows = sum(batch.num_rows for batch in result.batches())
        assert rows == 3_000_000
        # What did not fit into memory is read again from a file.
        total = sum(pyarrow.record_batch(batch)["value"].to_numpy().sum() for batch in result.batches())
        assert total == 3_000_000 * 3_000_001 // 2


def test_errors_come_in_the_midst(con: Connection) -> None:
    result = con.execute("SELECT 1 / (value - 90000) FROM generate_series(1, 100000) AS g(value)")
    for _ in range(2):
        with pytest.raises(weft.DataError, match="zero"):
            list(result.rows())
    with pytest.raises(weft.DataError, match="zero"):
        result.arrow()
    with pytest.raises(weft.DataError, match="zero"):
        result.record_batch_reader().read_all()


def test_empty_results_have_columns(con: Connection) -> None:
    result = con.sql("SELECT 1 AS a, 'x' AS b WHERE false")
    assert result.arrow().schema.names == ["a", "b"]
    assert result.df().shape == (0, 2)
    assert result.pl().columns == ["a", "b"]
    assert result.fetchall() == []


def test_they_are_shown(con: Connection) -> None:
    result = con.sql("SELECT 1 AS a, '<b>' AS b")
    assert "BIGINT" in repr(result)
    assert "&lt;b&gt;" in result._repr_html_()
    assert "…" in repr(con.sql(NUMBERS))


def test_rows_that_are_not_kept_are_fetched(con: Connection) -> None:
    result = con.execute(NUMBERS, keep=False)
    assert result.fetchone() == (1, "1")
    assert result.fetchmany(2) == [(2, "2"), (3, "3")]
    assert len(result.fetchall()) == 100_000 - 3
    assert result.fetchone() is None


@pytest.mark.parametrize("keep", [True, False])
def test_threads_fetch_each_row_once(con: Connection, keep: bool) -> None:
    result = con.execute(NUMBERS, keep=keep)

    def fetch(_: int) -> list[int]:
        found = []
        while rows := result.fetchmany(1000):
            found += [row[0] for row in rows]
        return found

    with ThreadPoolExecutor(4) as pool:
        found = [number for part in pool.map(fetch, range(4)) for number in part]
    assert sorted(found) == list(range(1, 100_001))
