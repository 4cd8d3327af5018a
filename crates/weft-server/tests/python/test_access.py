"""What roles may do that log in: rights, COPY, prepared statements, files, and what psql shows."""

import subprocess

import psycopg
import pytest

from conftest import Server

Forbidden = psycopg.errors.InsufficientPrivilege


@pytest.fixture
def roles(tmp_path):
    """A server whose superuser is `boss`, with the restricted roles `ann` and `bob`, and a table `t`."""
    server = Server(tmp_path / "db")
    with server.connect() as connection:
        connection.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, word VARCHAR)")
        connection.execute("INSERT INTO t VALUES (1, 'one'), (2, 'two')")
        connection.execute("CREATE ROLE boss LOGIN SUPERUSER PASSWORD 'b'")
    with server.connect(user="boss", password="b") as connection:
        connection.execute("CREATE ROLE ann LOGIN PASSWORD 'a'")
        connection.execute("CREATE ROLE bob LOGIN PASSWORD 'b'")
    yield server
    server.stop()


def boss(server):
    return server.connect(user="boss", password="b")


def ann(server):
    return server.connect(user="ann", password="a")


def forbidden(connection, sql, *values):
    with pytest.raises(Forbidden) as raised:
        connection.execute(sql, *values)
    assert raised.value.sqlstate == "42501"
    return str(raised.value)


def test_a_new_role_reads_nothing_until_it_may(roles):
    with boss(roles) as admin, ann(roles) as connection:
        assert connection.execute("SELECT current_user, session_user").fetchone() == ("ann", "ann")
        assert "permission denied for table t" in forbidden(connection, "SELECT * FROM t")
        forbidden(connection, "INSERT INTO t VALUES (3, 'three')")
        admin.execute("GRANT SELECT ON t TO ann")
        assert connection.execute("SELECT count(*) FROM t").fetchone() == (2,)
        forbidden(connection, "DELETE FROM t")
        admin.execute("REVOKE SELECT ON t FROM ann")
        forbidden(connection, "SELECT * FROM t")


def test_prepared_statements_lose_their_right(roles):
    with boss(roles) as admin, ann(roles) as connection:
        admin.execute("GRANT SELECT, UPDATE ON t TO ann")
        for number in range(1, 8):
            query = "SELECT word FROM t WHERE id = %s"
            connection.execute(query, (1 + number % 2,), prepare=True).fetchone()
            connection.execute("UPDATE t SET word = %s WHERE id = %s", ("w", 2), prepare=True)
        admin.execute("REVOKE ALL ON t FROM ann")
        for number in (1, 2, 77):
            with pytest.raises(Forbidden):
                connection.execute(query, (number,), prepare=True)
            with pytest.raises(Forbidden):
                connection.execute("UPDATE t SET word = %s WHERE id = %s", ("w", number), prepare=True)


def test_copy_needs_rights(roles):
    with boss(roles) as admin, ann(roles) as connection:
        for sql in ["COPY t TO STDOUT", "COPY (SELECT * FROM t) TO STDOUT", "COPY (SELECT * FROM t) TO STDOUT (FORMAT binary)"]:
            with pytest.raises(Forbidden):
                with connection.cursor().copy(sql) as copy:
                    for _ in copy:
                        pass
        with pytest.raises(Forbidden):
            with connection.cursor().copy("COPY t FROM STDIN") as copy:
                copy.write("3\tthree\n")
        admin.execute("GRANT INSERT ON t TO ann")
        with connection.cursor().copy("COPY t FROM STDIN") as copy:
            copy.write("3\tthree\n")
        with pytest.raises(Forbidden):
            with connection.cursor().copy("COPY t TO STDOUT") as copy:
                for _ in copy:
                    pass
        assert admin.execute("SELECT count(*) FROM t").fetchone() == (3,)


def test_files_of_the_server_are_for_members(roles, tmp_path):
    file = tmp_path / "plain.csv"
    file.write_text("a,b\n1,2\n")
    with boss(roles) as admin, ann(roles) as connection:
        admin.execute("GRANT pg_read_all_data, pg_write_all_data TO ann")
        for sql in [
            f"SELECT * FROM '{file}'",
            f"SELECT * FROM read_csv('{file}')",
            "SELECT * FROM read_text('/etc/passwd')",
            "SELECT * FROM glob('/*')",
            f"COPY t FROM '{file}'",
            f"COPY t TO '{tmp_path}/t.csv'",
            f"COPY (SELECT 1 AS a) TO '{tmp_path}/one.csv'",
            "CREATE SECRET s (TYPE s3, KEY_ID 'a', SECRET 'b')",
            "SET memory_limit = '64MB'",
            "SET threads = 1",
            f"ALTER DATABASE ADD DEVICE '{tmp_path}/device'",
        ]:
            forbidden(connection, sql)
        assert not (tmp_path / "one.csv").exists() and not (tmp_path / "t.csv").exists()
        admin.execute("GRANT pg_read_server_files TO ann")
        assert connection.execute(f"SELECT * FROM '{file}'").fetchall() == [(1, 2)]
        forbidden(connection, f"COPY t TO '{tmp_path}/t.csv'")
        admin.execute("GRANT pg_write_server_files TO ann")
        connection.execute(f"COPY t TO '{tmp_path}/t.csv'")


def test_roles_are_changed_by_superusers_alone(roles):
    with boss(roles) as admin, ann(roles) as connection:
        for sql in [
            "CREATE ROLE eve SUPERUSER PASSWORD 'x'",
            "ALTER ROLE ann SUPERUSER",
            "ALTER ROLE boss PASSWORD 'x'",
            "DROP ROLE bob",
            "GRANT boss TO ann",
            "GRANT pg_read_all_data TO ann",
            "SET ROLE boss",
            "SET ROLE weft",
        ]:
            forbidden(connection, sql)
        connection.execute("ALTER ROLE ann PASSWORD 'new'")
        roles.connect(user="ann", password="new").close()
        # Within a transaction, too.
        admin.execute("BEGIN")
        admin.execute("CREATE ROLE short PASSWORD 'x'")
        admin.execute("GRANT SELECT ON t TO ann")
        admin.execute("ROLLBACK")
        with pytest.raises(psycopg.OperationalError):
            roles.connect(user="short", password="x")
        forbidden(connection, "SELECT * FROM t")


def test_pools_get_the_role_back_that_has_logged_in(roles):
    with boss(roles) as admin:
        admin.execute("GRANT SELECT ON t TO ann")
        admin.execute("SET ROLE ann")
        assert admin.execute("SELECT current_user, session_user").fetchone() == ("ann", "boss")
        forbidden(admin, "DELETE FROM t")
        admin.execute("DISCARD ALL")
        assert admin.execute("SELECT current_user").fetchone() == ("boss",)
        admin.execute("DELETE FROM t")


def test_statements_of_others_are_not_shown(roles):
    with boss(roles) as admin, ann(roles) as connection:
        admin.execute("SELECT 'something secret'")
        shown = connection.execute("SELECT usename, query FROM pg_stat_activity WHERE usename = 'boss'").fetchall()
        assert shown == [("boss", "<insufficient privilege>")]
        assert connection.execute("SELECT query FROM pg_stat_activity WHERE usename = 'ann'").fetchone()[0].startswith("SELECT query")
        pid = admin.info.backend_pid
        assert connection.execute(f"SELECT pg_terminate_backend({pid})").fetchone() == (False,)


def test_psql_shows_rights(roles):
    with boss(roles) as admin:
        admin.execute("GRANT SELECT, INSERT ON t TO ann")
        admin.execute("GRANT SELECT ON t TO PUBLIC")
        admin.execute("GRANT pg_read_all_data TO bob")
    environment = {"PGPASSWORD": "b", "PATH": "/usr/bin:/bin"}

    def psql(*commands):
        words = [word for command in commands for word in ("-c", command)]
        command = ["psql", "-X", "-h", "127.0.0.1", "-p", str(roles.port), "-U", "boss", "weft", "-A", "-t", *words]
        return subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout

    shown = psql(r"\dp t")
    assert "ann=ar/weft" in shown and "=r/weft" in shown and "weft=arwdDx/weft" in shown
    assert "ann=ar/weft" in psql(r"\z")
    shown = psql(r"\du")
    assert "boss|Superuser" in shown and "ann|" in shown
    members = "SELECT g.rolname FROM pg_auth_members JOIN pg_roles m ON m.oid = member JOIN pg_roles g ON g.oid = roleid WHERE m.rolname = 'bob'"
    assert psql(members) == "pg_read_all_data\n"


def test_clients_that_were_there_before_the_first_role_go_on(tmp_path):
    server = Server(tmp_path / "db")
    with server.connect() as connection:
        connection.execute("CREATE TABLE t (a INTEGER)")
        connection.execute("CREATE ROLE ann LOGIN PASSWORD 'a'")
        connection.execute("SELECT * FROM t")
        connection.execute("DROP TABLE t")
    server.stop()
