"""Arrow Flight SQL, by the driver of ADBC that is made for it."""

import os
import pathlib
import re
import subprocess
import threading
import time

import adbc_driver_flightsql.dbapi as flight
from adbc_driver_flightsql import DatabaseOptions as flight_options
import adbc_driver_manager
import pyarrow as pa
import pytest


class FlightServer:
    """A running server, on ports of its own."""

    def __init__(self, *options):
        command = [os.environ["WEFT"], "serve", "--listen", "127.0.0.1:0", "--flight", "127.0.0.1:0", "--memory-limit", "256MB", *options]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.uri = self.process.stdout.readline().split()[-1]
        self.process.stdout.readline()

    def connect(self, user=None, password=None, **more):
        names = adbc_driver_manager.DatabaseOptions
        words = {} if user is None else {names.USERNAME.value: user, names.PASSWORD.value: password}
        return flight.connect(self.uri, db_kwargs=words | more.pop("options", {}), **more)

    def resident_bytes(self, name="VmHWM"):
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(name + r":\s+(\d+) kB", status)[1]) << 10

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


def test_statements_without_rows_run_once(server):
    with server.connect(autocommit=True) as connection, connection.cursor() as cursor:
        cursor.execute("CREATE TABLE t (i BIGINT PRIMARY KEY, s VARCHAR)")
        cursor.execute("INSERT INTO t VALUES (1, 'a')")
        cursor.execute("INSERT INTO t VALUES ($1, $2)", [2, "b"])
        cursor.execute("UPDATE t SET s = s || '!'")
        assert cursor.fetchall() == []
        cursor.execute("DELETE FROM t WHERE i = $1", [2])
        cursor.execute("INSERT INTO t VALUES (3, 'c') RETURNING s")
        assert cursor.fetchall() == [("c",)]
        cursor.execute("SELECT * FROM t ORDER BY i")
        assert cursor.fetchall() == [(1, "a!"), (3, "c")]
        with pytest.raises(flight.Error, match="(?i)unique|primary key|exists"):
            cursor.execute("INSERT INTO t VALUES (1, 'again')")


def test_values_of_each_type_come(server):
    with server.connect(autocommit=True) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT current_user AS u, [1, NULL]::INT[] AS l, {a: 1, b: 'x'} AS r, map {'k': 2} AS m, X'00FF' AS b, NULL AS n")
        assert cursor.fetchall() == [("weft", [1, None], {"a": 1, "b": "x"}, [("k", 2)], b"\x00\xff", None)]
        cursor.execute("SELECT $1 AS x, $2 AS y", [3, "c"])
        assert cursor.fetchall() == [(3, "c")]


def test_a_transaction_is_rolled_back(server):
    with server.connect() as connection, connection.cursor() as cursor:
        cursor.execute("CREATE TABLE t (i BIGINT)")
        connection.commit()
        cursor.execute("INSERT INTO t VALUES (1)")
        connection.rollback()
        cursor.execute("SELECT count(*) FROM t")
        assert cursor.fetchone() == (0,)


def test_a_cursor_that_is_closed_early_does_no_harm_to_its_transaction(server):
    with server.connect() as connection:
        with connection.cursor() as cursor:
            cursor.execute("CREATE TABLE t (i BIGINT)")
            assert connection.adbc_get_table_schema("t").names == ["i"]
        with connection.cursor() as cursor:
            cursor.execute("SELECT * FROM generate_series(1, 50000000)")
            assert cursor.fetchone() == (1,)
        with connection.cursor() as cursor:
            cursor.execute("INSERT INTO t VALUES (1)")
        connection.commit()
        with connection.cursor() as cursor:
            cursor.execute("SELECT * FROM t")
            assert cursor.fetchall() == [(1,)]


def test_a_query_is_cancelled(server):
    with server.connect(autocommit=True) as connection, connection.cursor() as cursor:
        timer = threading.Timer(0.3, cursor.adbc_cancel)
        timer.start()
        with pytest.raises(flight.Error, match="(?i)cancel"):
            cursor.execute("SELECT count(*) FROM generate_series(1, 1000000000000) AS v(i) WHERE i % 7 = 3")
            cursor.fetchone()
        timer.join()
    with server.connect(autocommit=True) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM pg_stat_activity WHERE state = 'active' AND query NOT LIKE '%pg_stat_activity%'")
        assert cursor.fetchone() == (0,)


def test_results_larger_than_memory_take_little(server):
    with server.connect(autocommit=True) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT * FROM generate_series(1, 100000000) AS v(i)")
        reader = cursor.fetch_record_batch()
        reader.read_next_batch()
        # The server does not run ahead of a client that reads nothing.
        time.sleep(1)
        rows = sum(batch.num_rows for batch in reader)
        assert rows > 99_000_000
    assert server.resident_bytes() < 400 << 20


def test_connections_are_encrypted(tmp_path):
    certificate, key = tmp_path / "server.crt", tmp_path / "server.key"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost",
         "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(certificate)],
        check=True, capture_output=True,
    )
    server = FlightServer("--tls-certificate", str(certificate), "--tls-key", str(key))
    try:
        assert server.uri.startswith("grpc+tls://")
        trusted = {flight_options.TLS_ROOT_CERTS.value: certificate.read_text()}
        with server.connect(options=trusted, autocommit=True) as connection, connection.cursor() as cursor:
            cursor.execute("CREATE ROLE ann LOGIN SUPERUSER PASSWORD 'a'")
        with server.connect("ann", "a", options=trusted, autocommit=True) as connection, connection.cursor() as cursor:
            cursor.execute("SELECT current_user")
            assert cursor.fetchone() == ("ann",)
        # Neither strangers to the certificate nor plain connections are served.
        for uri, options in [(server.uri, {}), (server.uri.replace("grpc+tls", "grpc"), {})]:
            with pytest.raises(flight.Error):
                with flight.connect(uri, db_kwargs=options, autocommit=True) as connection, connection.cursor() as cursor:
                    cursor.execute("SELECT 1")
    finally:
        server.stop()


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
        with pytest.raises(flight.Error, match="permission denied"):
            cursor.execute("SELECT * FROM secret")
        with pytest.raises(flight.Error, match="permission denied"):
            cursor.execute("INSERT INTO secret VALUES (1)")
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
