"""pgbench initializes its tables and runs all of its scripts, in each of its modes."""

import os
import shutil
import subprocess

import pytest

from conftest import Server

PGBENCH = os.environ.get("PGBENCH") or shutil.which("pgbench")
# Debian's pgbench is a script that looks for the program.
INSTALLED = PGBENCH and subprocess.run([PGBENCH, "--version"], capture_output=True).returncode == 0
pytestmark = pytest.mark.skipif(not INSTALLED, reason="pgbench is not installed")


def pgbench(server, *options):
    found = subprocess.run(
        [PGBENCH, "-h", "127.0.0.1", "-p", str(server.port), "-U", "me", *options, "weft"],
        capture_output=True, text=True, timeout=600,
    )
    assert found.returncode == 0, found.stderr
    assert "ERROR" not in found.stderr, found.stderr
    return found.stdout


@pytest.fixture(scope="module")
def initialized():
    server = Server()
    pgbench(server, "-i", "-q", "--foreign-keys")
    yield server
    server.stop()


def totals(server):
    sums = ("accounts", "abalance"), ("tellers", "tbalance"), ("branches", "bbalance"), ("history", "delta")
    with server.connect() as connection:
        rows = [connection.execute(f"SELECT sum({column}) FROM pgbench_{table}").fetchone()[0] or 0 for table, column in sums]
        count = connection.execute("SELECT count(*) FROM pgbench_history").fetchone()[0]
    return rows, count


def test_the_tables_are_those_of_pgbench(initialized):
    with initialized.connect() as connection:
        counts = [
            connection.execute(f"SELECT count(*) FROM pgbench_{table}").fetchone()[0]
            for table in ("branches", "tellers", "accounts", "history")
        ]
    assert counts == [1, 10, 100_000, 0]


@pytest.mark.parametrize("mode", ["simple", "extended", "prepared"])
@pytest.mark.parametrize("script", ["select-only", "simple-update", "tpcb-like"])
def test_a_script_runs(initialized, script, mode):
    before, rows = totals(initialized)
    # Transactions that meet another one's row wait for it: none fails.
    output = pgbench(initialized, "-n", "-b", script, "-M", mode, "-c", "3", "-t", "10")
    assert "number of transactions actually processed: 30/30" in output
    assert "number of failed transactions: 0 " in output
    after, rows_after = totals(initialized)
    changes = script != "select-only"
    assert rows_after - rows == (30 if changes else 0)
    deltas = [now - then for now, then in zip(after, before)]
    assert deltas[0] == deltas[3]
    if script == "tpcb-like":
        assert deltas[0] == deltas[1] == deltas[2]
