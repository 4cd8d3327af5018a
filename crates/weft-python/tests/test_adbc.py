"""The driver of ADBC, as managers of drivers load it from the package."""

import decimal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import adbc_driver_manager
import adbc_driver_manager.dbapi
import adbc_driver_weft
import pandas
import polars
import pyarrow
import pytest
import weft
from adbc_driver_weft import dbapi
from conftest import LONG

OPTIONS = {"memory_limit": "256MiB", "threads": "2"}


@pytest.fixture
def connection() -> Iterator[Any]:
    with dbapi.connect(db_kwargs=OPTIONS, autocommit=True) as connection:
        yield connection


def rows(connection: Any, sql: str, parameters: Any = None) -> list[Any]:
    with connection.cursor() as cursor:
        cursor.execute(sql, parameters)
        return cursor.fetchall()


def run(connection: Any, sql: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(sql)


def test_a_manager_of_drivers_loads_the_driver_from_the_package():
    connect = adbc_driver_manager.dbapi.connect
    with connect(
        driver=weft.adbc_driver_path(), entrypoint="AdbcDriverWeftInit", autocommit=True
    ) as connection:
        assert rows(connection, "SELECT 6 * 7") == [(42,)]
    # The generic name of an entry point is there as well.
    with connect(driver=weft.adbc_driver_path(), entrypoint="AdbcDriverInit") as connection:
        assert rows(connection, "SELECT 1") == [(1,)]


def test_each_type_comes_back_as_arrow_has_it(connection: Any):
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT TRUE AS b, CAST(1 AS SMALLINT) AS s, 1.50::DECIMAL(5, 2) AS d, 'ä' AS t, DATE '2020-02-29' AS day, "
            "TIMESTAMP '2020-01-01 00:00:00' AS at, [1, NULL] AS l, {a: 1} AS f, NULL::INTEGER AS n"
        )
        table = cursor.fetch_arrow_table()
    assert table.schema.field("s").type == pyarrow.int16()
    assert table.schema.field("d").type == pyarrow.decimal128(5, 2)
    row = table.to_pylist()[0]
    assert row["d"] == decimal.Decimal("1.50")
    assert (row["t"], row["l"], row["f"], row["n"]) == ("ä", [1, None], {"a": 1}, None)


def test_a_result_streams(connection: Any):
    with connection.cursor() as cursor:
        cursor.execute("SELECT value FROM generate_series(1, 1000000000) AS g(value)")
        reader = cursor.fetch_record_batch()
        first = reader.read_next_batch()
        assert first.column(0)[0].as_py() == 1
        assert first.num_rows < 1_000_000


def test_a_database_in_a_directory_is_open_once_and_stays(tmp_path: Path):
    path = str(tmp_path / "my.weft")
    with (
        dbapi.connect(path, autocommit=True) as first,
        dbapi.connect(f"weft://{path}", autocommit=True) as second,
    ):
        run(first, "CREATE TABLE t AS SELECT 1 AS a")
        assert rows(second, "SELECT a FROM t") == [(1,)]
        with pytest.raises(dbapi.ProgrammingError, match="other options"):
            dbapi.connect(path, {"read_only": "true"})
    with dbapi.connect(path, {"read_only": "true"}, autocommit=True) as reader:
        assert rows(reader, "SELECT a FROM t") == [(1,)]
        with pytest.raises(dbapi.Error):
            run(reader, "INSERT INTO t VALUES (2)")
        assert reader.adbc_database.get_option("path") == path


def test_options_of_a_database_are_checked(tmp_path: Path):
    with dbapi.connect(db_kwargs={"memory_limit": "128MiB", "weft.threads": "1"}) as connection:
        assert connection.adbc_database.get_option("memory_limit") == "128 MiB"
        assert connection.adbc_database.get_option("threads") == "1"
    for options in ({"memory_limit": "much"}, {"nonsense": "1"}, {"read_only": "maybe"}, {"username": "ann"}):
        with pytest.raises(dbapi.Error):
            dbapi.connect(db_kwargs=options)
    with pytest.raises(dbapi.ProgrammingError, match="postgresql"):
        dbapi.connect("postgresql://127.0.0.1/x")
    with pytest.raises(dbapi.Error):
        dbapi.connect(str(tmp_path / "none"), {"read_only": "true"})


def test_parameters_are_bound_by_rows(connection: Any):
    assert rows(connection, "SELECT ? + 1, ?", (41, "x")) == [(42, "x")]
    run(connection, "CREATE TABLE t (i INTEGER PRIMARY KEY, s VARCHAR, d DECIMAL(6, 2), at TIMESTAMP)")
    with connection.cursor() as cursor:
        cursor.executemany("INSERT INTO t (i, s) VALUES (?, ?)", [(1, "a"), (2, None), (3, "c")])
        assert cursor.rowcount == 3
        cursor.executemany("UPDATE t SET s = $2 WHERE i = $1", [(1, "A"), (9, "none")])
        assert cursor.rowcount == 1
        cursor.executemany("DELETE FROM t WHERE i = ?", [(3,)])
        assert cursor.rowcount == 1
    assert rows(connection, "SELECT i, s FROM t ORDER BY i") == [(1, "A"), (2, None)]
    table = pyarrow.table({"i": pyarrow.array([1, 2, 7], pyarrow.int32())})
    with connection.cursor() as cursor:
        cursor.execute("SELECT i * 10 AS x FROM t WHERE i = ?", table)
        assert cursor.fetchall() == [(10,), (20,)]
        # Without rows of parameters there are none of the result, but its columns.
        cursor.execute("SELECT i FROM t WHERE i = ?", table.slice(0, 0))
        assert cursor.fetch_arrow_table().schema.names == ["i"]


def test_a_statement_is_described_before_it_runs(connection: Any):
    run(connection, "CREATE TABLE t (i INTEGER, s VARCHAR)")
    with connection.cursor() as cursor:
        parameters = cursor.adbc_prepare("SELECT s FROM t WHERE i = ?")
        assert parameters.types == [pyarrow.int32()]
        assert cursor.adbc_execute_schema("SELECT i, s FROM t").names == ["i", "s"]
        with pytest.raises(dbapi.ProgrammingError):
            cursor.adbc_execute_schema("SELECT nothing FROM t")


def test_rows_are_ingested_by_each_mode(connection: Any):
    table = pyarrow.table({"a": [1, 2], "Odd name": ["x", None]})
    with connection.cursor() as cursor:
        assert cursor.adbc_ingest("t", table, mode="create") == 2
        with pytest.raises(dbapi.ProgrammingError) as raised:
            cursor.adbc_ingest("t", table, mode="create")
        assert raised.value.sqlstate == "42P07"
        assert cursor.adbc_ingest("t", table.to_reader(), mode="append") == 2
        assert cursor.adbc_ingest("t", table.select(["Odd name", "a"]), mode="create_append") == 2
        assert rows(connection, "SELECT count(*), sum(a) FROM t") == [(6, 9)]
        assert cursor.adbc_ingest("t", table.select(["a"]), mode="replace") == 2
        assert rows(connection, "SELECT * FROM t") == [(1,), (2,)]
        with pytest.raises(dbapi.ProgrammingError) as raised:
            cursor.adbc_ingest("missing", table, mode="append")
        assert raised.value.status_code == adbc_driver_manager.AdbcStatusCode.NOT_FOUND
        run(connection, "CREATE SCHEMA shop")
        assert cursor.adbc_ingest("t", table, mode="create", db_schema_name="shop") == 2
        assert cursor.adbc_ingest("t", table, mode="create", temporary=True) == 2
        assert rows(connection, "SELECT count(*) FROM temp.t") == [(2,)]
        assert rows(connection, "SELECT count(*) FROM shop.t") == [(2,)]
        # A stream that fails leaves nothing.
        def batches() -> Iterator[pyarrow.RecordBatch]:
            yield table.to_batches()[0]
            raise ValueError("no more")

        broken = pyarrow.RecordBatchReader.from_batches(table.schema, batches())
        with pytest.raises(dbapi.Error, match="no more"):
            cursor.adbc_ingest("half", broken, mode="create")
        with pytest.raises(dbapi.Error):
            rows(connection, "SELECT * FROM half")


def test_transactions_end_with_commit_or_rollback(tmp_path: Path):
    path = str(tmp_path / "my.weft")
    with dbapi.connect(path) as writer, dbapi.connect(path, autocommit=True) as reader:
        run(writer, "CREATE TABLE t (i INTEGER)")
        writer.commit()
        run(writer, "INSERT INTO t VALUES (1)")
        assert rows(reader, "SELECT count(*) FROM t") == [(0,)]
        writer.rollback()
        assert rows(writer, "SELECT count(*) FROM t") == [(0,)]
        run(writer, "INSERT INTO t VALUES (2)")
        writer.commit()
        assert rows(reader, "SELECT i FROM t") == [(2,)]
        # What one has changed meanwhile, the other one sees in its next transaction.
        run(reader, "INSERT INTO t VALUES (3)")
        assert rows(writer, "SELECT count(*) FROM t") == [(2,)]
        with pytest.raises(dbapi.ProgrammingError):
            rows(writer, "SELECT 1 FROM nowhere")
        writer.rollback()
        assert rows(writer, "SELECT 1") == [(1,)]
        with pytest.raises(dbapi.ProgrammingError, match="autocommit"):
            reader.adbc_connection.commit()


def test_a_connection_has_levels_and_settings(connection: Any):
    options = connection.adbc_connection
    options.set_options(**{"adbc.connection.transaction.isolation_level": "adbc.connection.transaction.isolation.serializable"})
    assert options.get_option("adbc.connection.transaction.isolation_level").endswith("serializable")
    options.set_options(**{"weft.batch_size": "77"})
    assert options.get_option("weft.batch_size") == "77"
    options.set_options(**{"adbc.connection.readonly": "true", "adbc.connection.autocommit": "false"})
    with pytest.raises(dbapi.Error) as raised:
        run(connection, "CREATE TABLE t (i INTEGER)")
    assert raised.value.sqlstate == "25006"
    for name, value in (("nothing", "1"), ("adbc.connection.catalog", "other"), ("adbc.connection.readonly", "maybe")):
        with pytest.raises(dbapi.Error):
            options.set_options(**{name: value})


def test_errors_have_codes_and_classes(connection: Any):
    run(connection, "CREATE TABLE t (i INTEGER PRIMARY KEY CHECK (i < 10))")
    run(connection, "INSERT INTO t VALUES (1)")
    for sql, kind, sqlstate in (
        ("SELEC 1", dbapi.ProgrammingError, "42601"),
        ("SELECT x FROM t", dbapi.ProgrammingError, "42000"),
        ("INSERT INTO t VALUES (1)", dbapi.IntegrityError, "23505"),
        ("INSERT INTO t VALUES (10)", dbapi.IntegrityError, "23514"),
        ("CREATE TABLE t (i INTEGER)", dbapi.ProgrammingError, "42P07"),
        ("SELECT CAST('x' AS INTEGER)", dbapi.DataError, "22000"),
    ):
        with pytest.raises(kind) as raised:
            rows(connection, sql)
        assert raised.value.sqlstate == sqlstate, sql
    statement = adbc_driver_manager.AdbcStatement(connection.adbc_connection)
    statement.set_sql_query("SELECT 1")
    with pytest.raises(dbapi.NotSupportedError) as raised:
        statement.execute_partitions()
    assert raised.value.sqlstate == "0A000"
    with pytest.raises(dbapi.NotSupportedError):
        statement.set_substrait_plan(b"plan")
    statement.close()


def test_objects_are_a_tree(connection: Any):
    run(connection, "CREATE TABLE parent (id INTEGER PRIMARY KEY, name VARCHAR(20) DEFAULT 'x')")
    run(connection, "CREATE SCHEMA shop")
    run(connection, "CREATE TABLE shop.child (up INTEGER REFERENCES parent (id), n DECIMAL(10, 2) NOT NULL CHECK (n > 0))")
    run(connection, "CREATE VIEW v AS SELECT id FROM parent")
    tree = connection.adbc_get_objects().read_all().to_pylist()
    assert [one["catalog_name"] for one in tree] == ["weft"]
    schemas = {one["db_schema_name"]: one["db_schema_tables"] for one in tree[0]["catalog_db_schemas"]}
    assert list(schemas) == ["information_schema", "main", "pg_catalog", "shop"]
    assert [(one["table_name"], one["table_type"]) for one in schemas["main"]] == [("parent", "BASE TABLE"), ("v", "VIEW")]
    parent, child = schemas["main"][0], schemas["shop"][0]
    assert [one["column_name"] for one in parent["table_columns"]] == ["id", "name"]
    name = parent["table_columns"][1]
    assert name["ordinal_position"] == 2 and name["xdbc_is_nullable"] == "YES" and "x" in name["xdbc_column_def"]
    assert child["table_columns"][1]["xdbc_nullable"] == 0
    constraints = {one["constraint_type"]: one for one in child["table_constraints"]}
    assert constraints["FOREIGN KEY"]["constraint_column_names"] == ["up"]
    assert constraints["FOREIGN KEY"]["constraint_column_usage"] == [
        {"fk_catalog": "weft", "fk_db_schema": "main", "fk_table": "parent", "fk_column_name": "id"}
    ]
    assert constraints["CHECK"]["constraint_column_usage"] is None
    assert [one["constraint_type"] for one in parent["table_constraints"]] == ["PRIMARY KEY"]

    def found(**filters: Any) -> Any:
        return connection.adbc_get_objects(**filters).read_all().to_pylist()

    assert found(depth="catalogs") == [{"catalog_name": "weft", "catalog_db_schemas": None}]
    schemas_only = found(depth="db_schemas", db_schema_filter="s%")
    assert schemas_only[0]["catalog_db_schemas"] == [{"db_schema_name": "shop", "db_schema_tables": None}]
    tables = found(depth="tables", table_types_filter=["VIEW"], db_schema_filter="main")
    assert [one["table_name"] for one in tables[0]["catalog_db_schemas"][0]["db_schema_tables"]] == ["v"]
    assert found(catalog_filter="other") == []
    columns = found(table_name_filter="parent", column_name_filter="i_", db_schema_filter="main")
    table = columns[0]["catalog_db_schemas"][0]["db_schema_tables"][0]
    assert [one["column_name"] for one in table["table_columns"]] == ["id"]


def test_tables_and_the_driver_are_described(connection: Any):
    run(connection, "CREATE TABLE t (i INTEGER NOT NULL, s VARCHAR)")
    run(connection, "INSERT INTO t VALUES (1, 'x'), (2, 'y')")
    assert connection.adbc_get_table_schema("t").names == ["i", "s"]
    assert connection.adbc_get_table_schema("t", db_schema_filter="main").field("i").nullable is False
    with pytest.raises(dbapi.ProgrammingError) as raised:
        connection.adbc_get_table_schema("missing")
    assert raised.value.status_code == adbc_driver_manager.AdbcStatusCode.NOT_FOUND
    assert connection.adbc_get_table_types() == ["BASE TABLE", "VIEW"]
    info = connection.adbc_get_info()
    assert info["vendor_name"] == "Weft" and info["driver_name"] == "ADBC Driver for Weft"
    assert info["vendor_version"] == weft.__version__
    for approximate in (True, False):
        found = connection.adbc_connection.get_statistics(approximate=approximate)
        found = pyarrow.RecordBatchReader._import_from_c(found.address).read_all().to_pylist()
        statistics = found[0]["catalog_db_schemas"][0]["db_schema_statistics"]
        assert [(one["table_name"], one["statistic_key"], one["statistic_value"]) for one in statistics] == [("t", 6, 2)]


def test_a_statement_is_cancelled_from_another_thread(connection: Any):
    with connection.cursor() as cursor:
        begun = time.monotonic()
        timer = threading.Timer(0.3, cursor.adbc_cancel)
        timer.start()
        # While rows are read, PyArrow has an error of its own.
        with pytest.raises((dbapi.Error, pyarrow.ArrowException)) as raised:
            cursor.execute(LONG)
            cursor.fetchall()
        assert time.monotonic() - begun < 30
        assert "cancel" in str(raised.value)
        timer.join()
    with connection.cursor() as cursor:
        threading.Timer(0.3, connection.adbc_cancel).start()
        with pytest.raises(dbapi.Error):
            cursor.execute(f"CREATE TABLE long AS {LONG}")
    assert rows(connection, "SELECT 1") == [(1,)]


def test_pandas_and_polars_read_and_write(tmp_path: Path):
    path = tmp_path / "my.weft"
    frame = pandas.DataFrame({"a": [1, 2, 3], "b": ["x", "y", None]})
    with dbapi.connect(str(path)) as connection:
        assert frame.to_sql("t", connection, index=False) == 3
        found = pandas.read_sql("SELECT sum(a) AS s FROM t", connection)
        assert found["s"].tolist() == [6]
        assert pandas.read_sql_table("t", connection)["a"].tolist() == [1, 2, 3]
        connection.commit()
        polars.DataFrame({"a": [4], "b": ["z"]}).write_database(
            "t", connection, engine="adbc", if_table_exists="append"
        )
        connection.commit()
        assert polars.read_database("SELECT max(a) FROM t", connection).item() == 4
    uri = f"weft://{path}"
    assert polars.read_database_uri("SELECT count(*) FROM t", uri, engine="adbc").item() == 4


def test_many_threads_have_connections_of_one_database(tmp_path: Path):
    path = str(tmp_path / "my.weft")
    with dbapi.connect(path, autocommit=True) as connection:
        run(connection, "CREATE TABLE t (i INTEGER)")
        errors: list[BaseException] = []

        def work(number: int) -> None:
            try:
                with dbapi.connect(path, autocommit=True) as own:
                    for _ in range(20):
                        run(own, f"INSERT INTO t VALUES ({number})")
            except BaseException as error:  # noqa: BLE001 - it is raised below
                errors.append(error)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not errors
        assert rows(connection, "SELECT count(*) FROM t") == [(80,)]


def test_the_level_of_adbc_itself_opens_a_database():
    database = adbc_driver_weft.connect(db_kwargs={adbc_driver_weft.DatabaseOptions.THREADS.value: "1"})
    with database, adbc_driver_manager.AdbcConnection(database) as connection:
        with adbc_driver_manager.AdbcStatement(connection) as statement:
            statement.set_sql_query("SELECT 1 AS one")
            stream, affected = statement.execute_query()
            assert affected == -1
            assert pyarrow.RecordBatchReader._import_from_c(stream.address).read_all().to_pylist() == [{"one": 1}]
