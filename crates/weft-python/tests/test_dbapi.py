"""PEP 249, point by point."""

import datetime
import time

import pytest
import weft
from weft import Connection


def test_module() -> None:
    assert weft.apilevel == "2.0"
    assert weft.threadsafety == 3
    assert weft.paramstyle == "qmark"
    assert callable(weft.connect)


def test_exceptions_are_a_hierarchy() -> None:
    assert issubclass(weft.Warning, Exception)
    assert issubclass(weft.Error, Exception)
    for error in (weft.InterfaceError, weft.DatabaseError):
        assert issubclass(error, weft.Error)
    for error in (
        weft.DataError,
        weft.OperationalError,
        weft.IntegrityError,
        weft.InternalError,
        weft.ProgrammingError,
        weft.NotSupportedError,
    ):
        assert issubclass(error, weft.DatabaseError)
        assert getattr(Connection, error.__name__) is error
    assert issubclass(weft.OutOfMemoryError, weft.OperationalError)


@pytest.mark.parametrize(
    ("sql", "error", "sqlstate"),
    [
        ("SELEC 1", weft.ProgrammingError, "42601"),
        ("SELECT * FROM nowhere", weft.ProgrammingError, "42000"),
        ("SELECT nothing", weft.ProgrammingError, "42000"),
        ("SELECT CAST('x' AS INTEGER)", weft.DataError, "22000"),
        ("CREATE TABLE t (a INTEGER)", weft.ProgrammingError, "42P07"),
        ("INSERT INTO t2 VALUES (NULL)", weft.IntegrityError, "23000"),
        ("SET nonsense = 1", weft.ProgrammingError, "22023"),
        ("OPTIMIZE", weft.NotSupportedError, "0A000"),
        ("SELECT * FROM 'missing.parquet'", weft.OperationalError, "58030"),
    ],
)
def test_errors_have_classes(
    con: Connection, sql: str, error: type[weft.Error], sqlstate: str
) -> None:
    con.execute("CREATE TABLE t (a INTEGER)")
    con.execute("CREATE TABLE t2 (a INTEGER NOT NULL)")
    with pytest.raises(error) as raised:
        con.execute(sql).fetchall()
    assert raised.value.sqlstate == sqlstate


def test_errors_have_positions_and_hints(con: Connection) -> None:
    con.execute("CREATE TABLE trips (vendor VARCHAR)")
    with pytest.raises(weft.ProgrammingError) as raised:
        con.execute("SELECT *\n  FROM trip")
    assert raised.value.position == (2, 8)
    assert raised.value.hint is not None
    assert "trips" in raised.value.hint


def test_transactions(con: Connection) -> None:
    con.execute("CREATE TABLE t (n INTEGER PRIMARY KEY)")
    other = con.duplicate()
    # Without begin() each statement commits by itself.
    con.execute("INSERT INTO t VALUES (1)")
    assert not con.in_transaction
    assert other.execute("SELECT count(*) FROM t").fetchone() == (1,)
    assert con.begin() is con
    assert con.in_transaction
    con.executemany("INSERT INTO t VALUES (?)", [(2,), (3,)])
    assert con.execute("SELECT count(*) FROM t").fetchone() == (3,)
    assert other.execute("SELECT count(*) FROM t").fetchone() == (1,)
    con.rollback()
    assert con.execute("SELECT count(*) FROM t").fetchone() == (1,)
    con.begin().execute("INSERT INTO t VALUES (2)")
    con.commit()
    con.commit()
    con.rollback()
    assert other.execute("SELECT count(*) FROM t").fetchone() == (2,)


def test_failed_transactions(con: Connection) -> None:
    con.execute("CREATE TABLE t (n INTEGER PRIMARY KEY)")
    other = con.duplicate()
    for connection in (con, other):
        connection.begin().execute("INSERT INTO t VALUES (1)")
    other.commit()
    with pytest.raises(weft.OperationalError) as raised:
        con.commit()
    assert raised.value.sqlstate == "40001"
    assert not con.in_transaction
    con.begin()
    with pytest.raises(weft.IntegrityError):
        con.execute("INSERT INTO t VALUES (1)")
    with pytest.raises(weft.OperationalError) as raised:
        con.execute("SELECT 1").fetchall()
    assert raised.value.sqlstate == "25P02"
    with pytest.raises(weft.OperationalError) as raised:
        con.commit()
    assert raised.value.sqlstate == "25P02"
    assert con.execute("SELECT n FROM t").fetchall() == [(1,)]
    con.begin().execute("DELETE FROM t")
    con.close()
    assert other.execute("SELECT n FROM t").fetchall() == [(1,)]


def test_connection_methods(con: Connection) -> None:
    con.commit()
    cursor = con.cursor()
    assert cursor.connection is con
    con.close()
    for use in (con.cursor, con.commit, con.rollback, lambda: cursor.execute("SELECT 1")):
        with pytest.raises(weft.Error):
            use()
    con.close()


def test_cursor_before_execute(con: Connection) -> None:
    cursor = con.cursor()
    assert cursor.description is None
    assert cursor.rowcount == -1
    assert cursor.arraysize == 1
    for fetch in (cursor.fetchone, cursor.fetchmany, cursor.fetchall):
        with pytest.raises(weft.Error):
            fetch()


def test_description(con: Connection) -> None:
    cursor = con.execute("SELECT 1 AS a, 'x' AS b, CAST(1.5 AS DECIMAL(5, 2)) AS c, DATE '2020-01-01' AS d, X'00' AS e")
    assert cursor.description is not None
    assert all(len(column) == 7 for column in cursor.description)
    assert [column[0] for column in cursor.description] == ["a", "b", "c", "d", "e"]
    kinds = [weft.NUMBER, weft.STRING, weft.NUMBER, weft.DATETIME, weft.BINARY]
    assert [column[1] for column in cursor.description] == kinds
    assert cursor.description[1][1] != weft.NUMBER
    assert cursor.description[2][4:6] == (5, 2)


def test_fetch(con: Connection) -> None:
    cursor = con.execute("SELECT value FROM generate_series(1, 20000) AS g(value) ORDER BY value")
    assert cursor.fetchone() == (1,)
    assert cursor.fetchmany(3) == [(2,), (3,), (4,)]
    cursor.arraysize = 2
    assert cursor.fetchmany() == [(5,), (6,)]
    assert cursor.fetchmany(0) == []
    rest = cursor.fetchall()
    assert len(rest) == 20000 - 6
    assert rest[0] == (7,)
    assert rest[-1] == (20000,)
    assert cursor.fetchone() is None
    assert cursor.fetchmany() == []
    assert cursor.fetchall() == []
    assert cursor.rowcount == 20000


def test_rows_of_a_cursor_are_iterated(con: Connection) -> None:
    cursor = con.execute("SELECT value FROM generate_series(1, 3000) AS g(value) ORDER BY value")
    assert next(iter(cursor)) == (1,)
    assert list(con.execute("SELECT 1 WHERE false")) == []


def test_rowcount(con: Connection) -> None:
    assert con.execute("CREATE TABLE t (a INTEGER)").rowcount == -1
    cursor = con.execute("INSERT INTO t VALUES (1), (2), (3)")
    assert cursor.rowcount == 3
    assert cursor.description is None
    with pytest.raises(weft.Error):
        cursor.fetchone()


@pytest.mark.parametrize(
    ("sql", "parameters"),
    [
        ("SELECT ?, ?", [1, "a"]),
        ("SELECT ?, ?", (1, "a")),
        ("SELECT $1, $2", [1, "a"]),
        ("SELECT :1, :2", [1, "a"]),
        ("SELECT $2, $1", ["a", 1]),
        ("SELECT :n, :s", {"n": 1, "s": "a"}),
        ("SELECT $n, $s", {"n": 1, "s": "a"}),
    ],
)
def test_parameter_styles(con: Connection, sql: str, parameters: object) -> None:
    assert con.execute(sql, parameters).fetchall() == [(1, "a")]  # type: ignore[arg-type]


def test_parameters_in_texts_are_none(con: Connection) -> None:
    assert con.execute("SELECT ':a', '?', :a", {"a": 1}).fetchall() == [(":a", "?", 1)]
    assert con.execute("SELECT [1, 2, 3][?:3]", [2]).fetchall() == [([2, 3],)]


def test_missing_parameters(con: Connection) -> None:
    for sql, parameters in [
        ("SELECT ?", []),
        ("SELECT ?", [1, 2]),
        ("SELECT :a", {}),
        ("SELECT :a", {"b": 1}),
        ("SELECT ?", {"a": 1}),
    ]:
        with pytest.raises(weft.ProgrammingError):
            con.execute(sql, parameters)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        con.execute("SELECT ?", "a text")


def test_executemany(con: Connection) -> None:
    con.execute("CREATE TABLE t (a INTEGER, b VARCHAR, c DECIMAL(10, 2))")
    cursor = con.executemany("INSERT INTO t (a, b) VALUES (?, upper(?))", [(1, "x"), (2, None)])
    assert cursor.rowcount == 2
    cursor = con.executemany("INSERT INTO t VALUES (:a, :b, 0.5)", [{"a": 3, "b": "y"}])
    assert cursor.rowcount == 1
    # No type has an integer and a text: each row is a statement.
    con.executemany("INSERT INTO t (b) VALUES (?)", [(4,), ("z",)])
    assert con.executemany("INSERT INTO t (a) VALUES (?)", []).rowcount == 0
    rows = con.execute("SELECT a, b FROM t ORDER BY a NULLS LAST, b").fetchall()
    assert rows == [(1, "X"), (2, None), (3, "y"), (None, "4"), (None, "z")]
    with pytest.raises(weft.ProgrammingError):
        con.executemany("SELECT ?", [(1,)])
    with pytest.raises(weft.ProgrammingError):
        con.executemany("INSERT INTO t (a, b) VALUES (?, ?)", [(1, "x"), (2,)])


def test_many_rows(con: Connection) -> None:
    con.execute("CREATE TABLE t (a BIGINT, b DOUBLE)")
    con.executemany("INSERT INTO t VALUES (?, ?)", ((n, n / 2) for n in range(100_000)))
    assert con.execute("SELECT count(*), sum(a), sum(b) FROM t").fetchone() == (
        100_000,
        4999950000,
        2499975000.0,
    )


def test_constructors() -> None:
    assert weft.Date(2020, 2, 3) == datetime.date(2020, 2, 3)
    assert weft.Time(1, 2, 3) == datetime.time(1, 2, 3)
    assert weft.Timestamp(2020, 2, 3, 4, 5, 6) == datetime.datetime(2020, 2, 3, 4, 5, 6)
    ticks = time.mktime((2020, 2, 3, 4, 5, 6, 0, 0, -1))
    assert weft.DateFromTicks(ticks) == datetime.date(2020, 2, 3)
    assert weft.TimeFromTicks(ticks) == datetime.time(4, 5, 6)
    assert weft.TimestampFromTicks(ticks) == datetime.datetime(2020, 2, 3, 4, 5, 6)
    assert weft.Binary(b"a") == b"a"


def test_input_and_output_sizes_do_nothing(con: Connection) -> None:
    cursor = con.cursor()
    cursor.setinputsizes([1])
    cursor.setoutputsize(1)


def test_scripts(con: Connection) -> None:
    con.executescript("CREATE TABLE t (a INTEGER); INSERT INTO t VALUES (1); SELECT ';' FROM t;")
    assert con.execute("SELECT * FROM t").fetchall() == [(1,)]
