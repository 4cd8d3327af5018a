"""Values of all types, there and back."""

import datetime
import uuid
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import numpy
import pandas
import pytest
import weft
from weft import Connection, Interval

UTC = datetime.UTC


@pytest.mark.parametrize(
    ("sql", "value"),
    [
        ("NULL", None),
        ("TRUE", True),
        ("CAST(-128 AS TINYINT)", -128),
        ("CAST(7 AS SMALLINT)", 7),
        ("CAST(7 AS INTEGER)", 7),
        ("CAST(-9223372036854775808 AS BIGINT)", -(2**63)),
        ("CAST(18446744073709551615 AS BIGINT UNSIGNED)", 2**64 - 1),
        ("CAST(1.5 AS REAL)", 1.5),
        ("CAST('inf' AS DOUBLE)", float("inf")),
        ("CAST(1.50 AS DECIMAL(5, 2))", Decimal("1.50")),
        ("CAST('-12345678901234567890123456789.123456789' AS DECIMAL(38, 9))", Decimal("-12345678901234567890123456789.123456789")),
        ("'grüße'", "grüße"),
        ("X'00FF'", b"\x00\xff"),
        ("DATE '0001-01-01'", datetime.date(1, 1, 1)),
        ("DATE '9999-12-31'", datetime.date(9999, 12, 31)),
        ("TIME '23:59:59.999999'", datetime.time(23, 59, 59, 999999)),
        ("TIMESTAMP '1969-12-31 23:59:59.5'", datetime.datetime(1969, 12, 31, 23, 59, 59, 500000)),
        ("TIMESTAMPTZ '2020-01-02 03:04:05+02'", datetime.datetime(2020, 1, 2, 1, 4, 5, tzinfo=UTC)),
        ("INTERVAL '3 days 4 hours'", datetime.timedelta(days=3, hours=4)),
        ("INTERVAL '1 month'", Interval(1, 0, 0)),
        ("[1, NULL, 3]", [1, None, 3]),
        ("[[1], []]", [[1], []]),
        ("named_struct('a', 1, 'b', ['x'])", {"a": 1, "b": ["x"]}),
        ("[named_struct('a', 1)]", [{"a": 1}]),
    ],
)  # fmt: skip
def test_values_of_sql(con: Connection, sql: str, value: object) -> None:
    (found,) = con.execute(f"SELECT {sql}").fetchall()[0]
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    "value",
    [
        True,
        0,
        -(2**63),
        2**64 - 1,
        1.25,
        float("-inf"),
        Decimal("0.001"),
        Decimal("-123.45"),
        Decimal("1000"),
        "",
        "it's; -- $1 ?",
        "日本",
        b"",
        b"\x00'\xff",
        datetime.date(2024, 2, 29),
        datetime.time(0, 0),
        datetime.datetime(2024, 2, 29, 12, 30, 45, 123456),
        datetime.datetime(2024, 2, 29, 12, 30, tzinfo=UTC),
        datetime.timedelta(days=1, seconds=2, microseconds=3),
        datetime.timedelta(days=-1, microseconds=1),
        Interval(13, -2, 5000),
        [1, 2],
        ["a", None],
        [[1], [2, 3]],
        {"a": 1, "it's": "b"},
    ],
)
def test_values_there_and_back(con: Connection, value: Any) -> None:
    assert con.execute("SELECT ?", [value]).fetchall() == [(value,)]
    con.execute("CREATE TABLE kept AS SELECT ? AS v", [value])
    con.executemany("INSERT INTO kept VALUES (?)", [(value,), (None,)])
    rows = [row[0] for row in con.execute("SELECT v FROM kept").fetchall()]
    assert sorted(map(repr, rows)) == sorted(map(repr, [value, value, None]))


def test_nan(con: Connection) -> None:
    ((found,),) = con.execute("SELECT ?", [float("nan")]).fetchall()
    assert found != found


def test_values_that_become_others(con: Connection) -> None:
    unique = uuid.UUID("12345678123456781234567812345678")
    there = datetime.datetime(2024, 7, 1, 12, tzinfo=ZoneInfo("Europe/Berlin"))
    for given, found in [
        (None, None),
        (Decimal("1E+3"), Decimal("1000")),
        (unique, str(unique)),
        ((1, 2), [1, 2]),
        (bytearray(b"a"), b"a"),
        (memoryview(b"ab"), b"ab"),
        (there, datetime.datetime(2024, 7, 1, 10, tzinfo=UTC)),
        (10**30, Decimal(10**30)),
        (numpy.int32(3), 3),
        (numpy.float64(1.5), 1.5),
        (numpy.bool_(True), True),
        (numpy.datetime64("2020-01-01T00:00:01"), datetime.datetime(2020, 1, 1, 0, 0, 1)),
        (numpy.array([1, 2]), [1, 2]),
        (pandas.Timestamp("2020-01-01"), datetime.datetime(2020, 1, 1)),
        (pandas.NaT, None),
        (pandas.NA, None),
    ]:
        assert con.execute("SELECT ?", [given]).fetchall() == [(found,)], given


@pytest.mark.parametrize(
    "value",
    [10**38, Decimal("1e40"), Decimal("NaN"), object(), {1: 2}, datetime.time(1, tzinfo=UTC)],
)
def test_values_that_sql_has_not(con: Connection, value: object) -> None:
    with pytest.raises(weft.DataError, match="parameter 1"):
        con.execute("SELECT ?", [value])


def test_values_that_python_has_not(con: Connection) -> None:
    with pytest.raises(weft.DataError, match="beyond"):
        con.execute("SELECT DATE '9999-12-31' + INTERVAL '1 day'").fetchall()
