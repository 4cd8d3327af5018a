"""psycopg 3: parameters, COPY, cancellation, users."""

import datetime
import decimal
import threading
import time

import psycopg
import pytest

from conftest import Server


def test_values_come_back_in_both_formats(connection):
    values = [
        True, 7, 2**40, 1.5, decimal.Decimal("12.50"), "it's ä", b"\x00\xff", datetime.date(1999, 12, 31),
        datetime.datetime(2020, 1, 2, 3, 4, 5, 6), [1, 2], ["a,b", "c\"d"], None,
    ]
    for binary in [False, True]:
        for value in values:
            with connection.cursor(binary=binary) as cursor:
                cast = "::text[]" if isinstance(value, list) and isinstance(value[0], str) else ""
                found = cursor.execute(f"SELECT %s{cast}", [value]).fetchone()[0]
                assert found == value, value


def test_arrays_are_parameters(connection):
    found = connection.execute("SELECT i FROM t WHERE i = ANY(%s)", [[1, 5]]).fetchall()
    assert found == [(1,)]


def test_copy_in_each_format(connection):
    connection.execute("CREATE TABLE copied (i INTEGER, n DECIMAL(10, 2), s VARCHAR, at TIMESTAMP)")
    rows = [(1, decimal.Decimal("1.50"), "a\tb", datetime.datetime(2020, 1, 2)), (2, None, "", None)]
    with connection.cursor() as cursor:
        with cursor.copy("COPY copied FROM STDIN") as copy:
            for row in rows:
                copy.write_row(row)
        assert cursor.rowcount == 2
        with cursor.copy("COPY copied (i, n, s, at) FROM STDIN (FORMAT BINARY)") as copy:
            copy.set_types(["int4", "numeric", "text", "timestamp"])
            for row in rows:
                copy.write_row(row)
        for options in ["", "(FORMAT BINARY)"]:
            with cursor.copy(f"COPY (SELECT * FROM copied ORDER BY i) TO STDOUT {options}") as copy:
                copy.set_types(["int4", "numeric", "text", "timestamp"])
                assert list(copy.rows()) == [rows[0], rows[0], rows[1], rows[1]]
    connection.execute("DROP TABLE copied")


def test_a_copy_that_fails_leaves_nothing(connection):
    connection.execute("CREATE TABLE copied (i INTEGER)")
    with pytest.raises(psycopg.DataError, match="line 2.*'x'"):
        with connection.cursor().copy("COPY copied FROM STDIN") as copy:
            copy.write("1\nx\n")
    with pytest.raises(ZeroDivisionError):
        with connection.cursor().copy("COPY copied FROM STDIN") as copy:
            copy.write("1\n")
            1 / 0
    assert connection.execute("SELECT count(*) FROM copied").fetchone() == (0,)
    connection.execute("DROP TABLE copied")


def test_activity_is_shown_and_statements_are_cancelled(server, connection):
    other = server.connect(application_name="sleeper")
    errors = []

    def run():
        try:
            other.execute("SELECT count(*) FROM generate_series(1, 1000000000000) AS v(i) WHERE i % 7 = 3")
        except psycopg.Error as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    query = "SELECT pid, state, query FROM pg_stat_activity WHERE application_name = 'sleeper'"
    deadline = time.monotonic() + 600
    while connection.execute(query).fetchone()[1] != "active" and time.monotonic() < deadline:
        time.sleep(0.05)
    pid, state, text = connection.execute(query).fetchone()
    assert state == "active" and "generate_series" in text
    assert pid == other.info.backend_pid
    assert connection.execute("SELECT pg_cancel_backend(%s)", [pid]).fetchone() == (True,)
    thread.join(600)
    assert errors[0].sqlstate == "57014"
    assert other.execute("SELECT pg_backend_pid()").fetchone() == (pid,)
    assert connection.execute("SELECT pg_terminate_backend(%s)", [pid]).fetchone() == (True,)
    with pytest.raises(psycopg.OperationalError):
        while True:
            other.execute("SELECT 1")
            time.sleep(0.05)
    assert connection.execute("SELECT pg_cancel_backend(-1)").fetchone() == (False,)


def test_idle_connections_are_ended(server):
    idle = server.connect()
    idle.execute("SET idle_session_timeout = 100")
    deadline = time.monotonic() + 600
    with pytest.raises(psycopg.OperationalError):
        # Each statement begins the time anew.
        while time.monotonic() < deadline:
            time.sleep(1.5)
            idle.execute("SELECT 1")


def test_settings_are_seen_from_sql(connection):
    connection.execute("SELECT set_config('application_name', 'tests', false)")
    assert connection.execute("SELECT current_setting('application_name')").fetchone() == ("tests",)
    assert connection.execute("SELECT setting FROM pg_settings WHERE name = 'server_version_num'").fetchone() == ("140020",)
    assert connection.execute("SELECT current_user, current_database(), current_schema()").fetchone() == ("me", "weft", "main")
    with pytest.raises(psycopg.Error, match="no setting"):
        connection.execute("SELECT current_setting('nothing')")


def test_users_have_passwords(tmp_path):
    server = Server(tmp_path / "db")
    with server.connect() as connection:
        connection.execute("CREATE ROLE ann LOGIN SUPERUSER PASSWORD 'secret'")
    with pytest.raises(psycopg.OperationalError, match="password"):
        server.connect()
    for words in [{"user": "ann", "password": "wrong"}, {"user": "bob", "password": "secret"}]:
        with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
            server.connect(**words)
    with server.connect(user="ann", password="secret") as connection:
        connection.execute("CREATE ROLE bob LOGIN PASSWORD 'pw'")
        roles = connection.execute("SELECT rolname, rolsuper FROM pg_roles WHERE rolname NOT LIKE 'pg_%' ORDER BY rolname").fetchall()
        assert roles == [("ann", True), ("bob", False), ("weft", True)]
    with server.connect(user="bob", password="pw") as connection:
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute("CREATE ROLE eve PASSWORD 'x'")
        connection.execute("ALTER ROLE bob PASSWORD 'new'")
    server.stop()
    # They are there when the database is opened again.
    server = Server(tmp_path / "db")
    server.connect(user="bob", password="new").close()
    with server.connect(user="ann", password="secret") as connection:
        connection.execute("DROP ROLE bob")
    with pytest.raises(psycopg.OperationalError):
        server.connect(user="bob", password="new")
    server.stop()


def test_connections_are_encrypted(tmp_path):
    import subprocess
    certificate, key = tmp_path / "server.crt", tmp_path / "server.key"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost",
         "-keyout", str(key), "-out", str(certificate)],
        check=True, capture_output=True,
    )
    server = Server(None, "--tls-certificate", str(certificate), "--tls-key", str(key))
    with server.connect(sslmode="verify-ca", sslrootcert=certificate) as connection:
        assert connection.execute("SELECT current_setting('ssl')").fetchone() == ("on",)
        connection.execute("CREATE ROLE ann LOGIN PASSWORD 'secret'")
    # The password is bound to the certificate.
    words = {"user": "ann", "password": "secret", "sslmode": "require", "channel_binding": "require"}
    with server.connect(**words) as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)
    server.stop()
