"""`weft serve` itself: how it starts, ends, and starts again."""

import os
import pathlib
import re
import resource
import signal
import socket
import struct
import subprocess

import psycopg
import pytest

from conftest import Server


def serve(*options):
    command = [os.environ["WEFT"], "serve", *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=600)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_server_and_its_clients(number):
    server = Server()
    with server.connect() as connection:
        connection.execute("SELECT 1")
        server.process.send_signal(number)
        assert server.process.wait(timeout=600) == 0
        with pytest.raises(psycopg.OperationalError):
            connection.execute("SELECT 1")


def test_what_was_committed_is_there_after_a_kill(tmp_path):
    server = Server(tmp_path / "db")
    connection = server.connect()
    connection.execute("CREATE TABLE t (i INTEGER PRIMARY KEY)")
    for number in range(20):
        connection.execute("INSERT INTO t VALUES (%s)", [number])
    # The rows of a COPY that goes on are not committed.
    copying = connection.cursor().copy("COPY t FROM STDIN")
    copying.__enter__().write("100\n" * 10_000)
    server.process.kill()
    server.process.wait(timeout=600)
    server = Server(tmp_path / "db")
    with server.connect() as connection:
        found = connection.execute("SELECT count(*), max(i) FROM t").fetchone()
        assert found == (20, 19)
    server.stop()


def test_two_clients_see_what_the_other_committed(server):
    with server.connect() as one, server.connect() as other:
        one.execute("CREATE TABLE shared (i INTEGER)")
        other.execute("INSERT INTO shared VALUES (1)")
        assert one.execute("SELECT i FROM shared").fetchall() == [(1,)]
        one.execute("DROP TABLE shared")
        with pytest.raises(psycopg.Error, match="shared"):
            other.execute("SELECT i FROM shared")


def test_an_address_that_is_taken_is_told(server):
    found = serve("--listen", f"127.0.0.1:{server.port}")
    assert found.returncode == 1
    assert f"127.0.0.1:{server.port}" in found.stderr


def test_addresses_that_others_reach_demand_users():
    found = serve("--listen", "0.0.0.0:0")
    assert found.returncode == 1
    assert "CREATE ROLE" in found.stderr


def test_a_certificate_that_is_not_there_is_told(tmp_path):
    missing = str(tmp_path / "no.pem")
    found = serve("--listen", "127.0.0.1:0", "--tls-certificate", missing, "--tls-key", missing)
    assert found.returncode == 1
    assert "no.pem" in found.stderr


def resident_bytes(pid):
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+) kB", status)[1]) << 10


def test_ten_thousand_idle_sessions_take_little_memory():
    count, spare = 10_000, 200
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < count + spare:
        pytest.skip(f"a process may have {hard} files open only")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, count + spare), hard))
    server = Server(None, "--connections", str(count + 1))
    sockets = []
    try:
        server.connect().close()
        before = resident_bytes(server.process.pid)
        words = struct.pack("!i", 196_608) + b"user\0me\0database\0weft\0\0"
        for _ in range(count):
            one = socket.create_connection(("127.0.0.1", server.port))
            one.sendall(struct.pack("!i", len(words) + 4) + words)
            sockets.append(one)
        for one in sockets:
            # Ready for a query, and in no transaction.
            answer = b""
            while not answer.endswith(b"Z\0\0\0\x05I"):
                answer += one.recv(4096)
        assert resident_bytes(server.process.pid) - before < 200 << 20
        with server.connect() as connection:
            assert connection.execute("SELECT count(*) FROM pg_stat_activity").fetchone() == (count + 1,)
            with pytest.raises(psycopg.OperationalError, match="too many clients"):
                server.connect()
    finally:
        for one in sockets:
            one.close()
        server.stop()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
