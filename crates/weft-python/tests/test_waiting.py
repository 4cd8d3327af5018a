"""Threads, signals, forks, cancelling, and the memory limit."""

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import weft
from conftest import LONG
from weft import Connection


def after(seconds: float, act: object) -> threading.Timer:
    timer = threading.Timer(seconds, act)  # type: ignore[arg-type]
    timer.start()
    return timer


def test_interrupt(con: Connection) -> None:
    timer = after(0.2, con.interrupt)
    with pytest.raises(weft.QueryCancelledError) as raised:
        con.execute(LONG).fetchall()
    timer.join()
    assert raised.value.sqlstate == "57014"
    assert con.execute("SELECT 1").fetchall() == [(1,)]


def test_ctrl_c(con: Connection) -> None:
    timer = after(0.2, lambda: os.kill(os.getpid(), signal.SIGINT))
    cursor = con.cursor()
    with pytest.raises(KeyboardInterrupt):
        cursor.execute(LONG)
        cursor.fetchall()
    timer.join()
    assert con.execute("SELECT 1").fetchall() == [(1,)]


def test_other_threads_run_meanwhile(con: Connection) -> None:
    def tick() -> None:
        for _ in range(20):
            time.sleep(0.01)
        con.interrupt()

    thread = threading.Thread(target=tick)
    thread.start()
    # The statement ends only because the other thread has run.
    with pytest.raises(weft.QueryCancelledError):
        con.execute(LONG).fetchall()
    thread.join()


def test_threads_share_a_connection(con: Connection) -> None:
    def query(number: int) -> int:
        row = con.execute("SELECT sum(value) + ? FROM generate_series(1, 1000) AS g(value)", [number]).fetchone()
        assert row is not None
        return int(row[0])

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(query, range(40))) == [500500 + number for number in range(40)]


def test_threads_share_a_result(con: Connection) -> None:
    result = con.execute("SELECT value FROM generate_series(1, 100000) AS g(value)")
    with ThreadPoolExecutor(4) as pool:
        counts = list(pool.map(lambda _: sum(1 for _ in result.rows()), range(4)))
    assert counts == [100_000] * 4


def test_closing_cancels(con: Connection) -> None:
    cursor = con.execute(LONG)
    con.close()
    with pytest.raises(weft.Error):
        cursor.fetchall()


def test_out_of_memory() -> None:
    with weft.connect(memory_limit="16MiB", threads=2) as con:
        with pytest.raises(weft.OutOfMemoryError) as raised:
            con.execute("SELECT array_agg(value) FROM generate_series(1, 20000000) AS g(value)").arrow()
        assert isinstance(raised.value, MemoryError)
        assert con.execute("SELECT 1").fetchall() == [(1,)]


def run(script: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_ctrl_c_in_a_stream() -> None:
    """Another library, which waits for the stream, raises an error of its own; the signal is heard all the same."""
    done = run(
        f"""
        import os, signal, threading, time
        import pyarrow, weft
        con = weft.connect(threads=2)
        pyarrow.table(con.execute("SELECT 1 AS a"))
        result = con.execute('{" ".join(LONG.split())}')
        threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        try:
            try:
                pyarrow.table(result)
            except pyarrow.ArrowException:
                for _ in range(600):
                    time.sleep(0.1)
        except KeyboardInterrupt:
            assert con.execute("SELECT 1").fetchall() == [(1,)]
            print("well")
        """
    )
    assert done.stdout == "well\n", done.stderr


def test_a_child_gets_an_error() -> None:
    done = run(
        """
        import os, weft
        con = weft.connect()
        result = con.execute("SELECT 1 AS a")
        child = os.fork()
        if child == 0:
            for use in (lambda: con.execute("SELECT 1"), result.fetchall, con.cursor):
                try:
                    use()
                except weft.InterfaceError as error:
                    assert "fork" in str(error)
                else:
                    os._exit(1)
            # A connection of its own works, and so do the functions of the module.
            assert weft.connect().execute("SELECT 2").fetchall() == [(2,)]
            assert weft.sql("SELECT 3").fetchall() == [(3,)]
            raise SystemExit(0)
        _, status = os.waitpid(child, 0)
        assert status == 0, status
        assert result.fetchall() == [(1,)]
        print("well")
        """
    )
    assert done.stdout == "well\n", done.stderr


def test_the_end_of_the_program() -> None:
    done = run(
        f"""
        import weft
        con = weft.connect()
        result = con.execute('{" ".join(LONG.split())}')
        batch = weft.sql("SELECT 1")
        print("well")
        """
    )
    assert done.stdout == "well\n"
    assert done.stderr == ""
    assert done.returncode == 0


def test_databases_are_shared_and_closed(tmp_path: object) -> None:
    path = f"{tmp_path}/db"
    with weft.connect(path) as con, weft.connect(path) as other:
        con.execute("CREATE TABLE t AS SELECT 1 AS a")
        assert other.execute("SELECT a FROM t").fetchall() == [(1,)]
        with pytest.raises(weft.InterfaceError):
            weft.connect(path, read_only=True)
        with con.duplicate() as third:
            assert third.tables() == ["t"]
    with weft.connect(path, read_only=True) as con:
        assert con.execute("SELECT a FROM t").fetchall() == [(1,)]
        with pytest.raises(weft.OperationalError):
            con.execute("INSERT INTO t VALUES (2)")
    with pytest.raises(weft.OperationalError):
        weft.connect(f"{tmp_path}/none", read_only=True)


def test_settings() -> None:
    with weft.connect(threads=1, config={"batch_size": 100}) as con:
        assert con.execute("SHOW threads").fetchall() == [("threads", "1")]
        assert con.execute("SHOW batch_size").fetchall() == [("batch_size", "100")]
    with pytest.raises(weft.ProgrammingError):
        weft.connect(config={"nonsense": 1})
