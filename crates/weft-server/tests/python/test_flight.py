"""Arrow Flight SQL, by the driver of ADBC that is made for it."""

import os
import subprocess

import adbc_driver_flightsql.dbapi as flight
import adbc_driver_manager
import pyarrow as pa
import pytest


class FlightServer:
    """A running server, on ports of its own."""

    def __init__(self):
        command = [os.environ["WEFT"], "serve", "--listen", "127.0.0.1:0", "--flight", "127.0.0.1:0", "--memory-limit", "256MB"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.uri = self.process.stdout.readline().split()[-1]
        self.process.stdout.readline()

    def connect(self, user=None, password=None, **more):
        names = adbc_driver_manager.DatabaseOptions
        words = {} if user is None else {names.USERNAME.value: user, names.PASSWORD.value: password}
        return flight.connect(self.uri, db_kwargs=words, **more)

    def stop(self):
        self.process.terminate()
        self.process.wait(timeout=600)


@pytest.fixture
def server():
    server = FlightServer()
    yield server
    server.stop()


def test_rows_come_and_go(server):
    with server.connect(autocommit=True) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT 42 AS n, 'ä' AS s")
        assert cursor.fetchall() == [(42, "ä")]
        cursor.execute("CREATE TABLE t (i BIGINT, s VARCHAR)")
        table = pa.table({"i": pa.array(range(100_000), pa.int64()), "s": ["x"] * 100_000})
        assert cursor.adbc_ingest("t", table, mode="append") == 100_000
        cursor.execute("SELECT * FROM t")
        assert cursor.fetch_arrow_table().num_rows == 100_000
        cursor.execute("SELECT count(*) FROM t WHERE i < $1", [10])
        assert cursor.fetchone() == (10,)
        cursor.executemany("INSERT INTO t VALUES ($1, $2)", [(-1, "a"), (-2, "b")])
        cursor.execute("SELECT s FROM t WHERE i < 0 ORDER BY i")
        assert cursor.fetchall() == [("b",), ("a",)]


def test_a_transaction_is_rolled_back(server):
    with server.connect() as connection, connection.cursor() as cursor:
        cursor.execute("CREATE TABLE t (i BIGINT)")
        connection.commit()
        cursor.execute("INSERT INTO t VALUES (1)")
        connection.rollback()
        cursor.execute("SELECT count(*) FROM t")
        assert cursor.fetchone() == (0,)


def test_errors_are_told(server):
    with server.connect(autocommit=True) as connection, connection.cursor() as cursor:
        with pytest.raises(flight.Error, match="nothing"):
            cursor.execute("SELECT * FROM nothing")


def test_passwords_and_rights_hold(server):
    with server.connect(autocommit=True) as connection, connection.cursor() as cursor:
        cursor.execute("CREATE TABLE secret (i BIGINT)")
        cursor.execute("CREATE ROLE boss LOGIN SUPERUSER PASSWORD 'b'")
        cursor.execute("CREATE ROLE ann LOGIN PASSWORD 'a'")
    for user, password in [("ann", "wrong"), ("nobody", "a")]:
        with pytest.raises(flight.Error, match="(?i)unauthenticated|password"):
            with server.connect(user, password, autocommit=True) as connection, connection.cursor() as cursor:
                cursor.execute("SELECT 1")
    with server.connect("ann", "a", autocommit=True) as connection, connection.cursor() as cursor:
        with pytest.raises(flight.Error):
            cursor.execute("SELECT * FROM secret")
    with server.connect("boss", "b", autocommit=True) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT * FROM secret")
        assert cursor.fetchall() == []


def test_what_the_database_holds_is_told(server):
    with server.connect(autocommit=True) as connection:
        with connection.cursor() as cursor:
            cursor.execute("CREATE TABLE t (i BIGINT PRIMARY KEY)")
        assert connection.adbc_get_info()["vendor_name"] == "Weft"
        assert connection.adbc_get_table_schema("t").names == ["i"]
        objects = connection.adbc_get_objects(depth="tables").read_all().to_pylist()
        assert objects[0]["catalog_name"] == "weft"
