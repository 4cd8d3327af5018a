"""Transactions of several connections that wait for each other's rows and keys, as those of PostgreSQL."""

import threading
import time

import psycopg
import pytest

WHO_BLOCKS_WHOM = """
SELECT blocked_locks.pid, blocked_activity.query, blocking_locks.pid, blocking_activity.state
FROM pg_catalog.pg_locks blocked_locks
JOIN pg_catalog.pg_stat_activity blocked_activity ON blocked_activity.pid = blocked_locks.pid
JOIN pg_catalog.pg_locks blocking_locks ON blocking_locks.locktype = blocked_locks.locktype
    AND blocking_locks.database IS NOT DISTINCT FROM blocked_locks.database
    AND blocking_locks.relation IS NOT DISTINCT FROM blocked_locks.relation
    AND blocking_locks.page IS NOT DISTINCT FROM blocked_locks.page
    AND blocking_locks.tuple IS NOT DISTINCT FROM blocked_locks.tuple
    AND blocking_locks.virtualxid IS NOT DISTINCT FROM blocked_locks.virtualxid
    AND blocking_locks.transactionid IS NOT DISTINCT FROM blocked_locks.transactionid
    AND blocking_locks.classid IS NOT DISTINCT FROM blocked_locks.classid
    AND blocking_locks.objid IS NOT DISTINCT FROM blocked_locks.objid
    AND blocking_locks.objsubid IS NOT DISTINCT FROM blocked_locks.objsubid
    AND blocking_locks.pid != blocked_locks.pid
JOIN pg_catalog.pg_stat_activity blocking_activity ON blocking_activity.pid = blocking_locks.pid
WHERE NOT blocked_locks.granted
"""


@pytest.fixture
def connections(server):
    opened = [server.connect() for _ in range(3)]
    opened[0].execute("CREATE TABLE locked (k INTEGER PRIMARY KEY, v INTEGER)")
    opened[0].execute("INSERT INTO locked VALUES (1, 10), (2, 20), (3, 30)")
    yield opened
    for connection in opened:
        connection.execute("ROLLBACK")
    opened[0].execute("DROP TABLE locked")
    for connection in opened:
        connection.close()


class Waiting:
    """A statement on a thread of its own."""

    def __init__(self, connection, sql):
        self.outcome = None
        self.thread = threading.Thread(target=self.run, args=(connection, sql), daemon=True)
        self.thread.start()

    def run(self, connection, sql):
        try:
            self.outcome = connection.execute(sql).statusmessage
        except psycopg.Error as error:
            self.outcome = error.sqlstate

    def ended(self):
        self.thread.join(60)
        return self.outcome


def until_blocked(observer, blocked):
    """Waits until a connection waits, and returns by whom it is blocked."""
    end = time.monotonic() + 60
    while time.monotonic() < end:
        by = observer.execute("SELECT pg_blocking_pids(%s)", (blocked.info.backend_pid,)).fetchone()[0]
        if by:
            return by
    raise AssertionError("nothing waits")


def test_rows_that_are_locked_are_errors_or_left_out(connections):
    first, second, _ = connections
    first.execute("BEGIN")
    first.execute("UPDATE locked SET v = 11 WHERE k = 1")
    with pytest.raises(psycopg.errors.LockNotAvailable, match='could not obtain lock on row in relation "locked"'):
        second.execute("SELECT v FROM locked WHERE k = %s FOR UPDATE NOWAIT", (1,))
    taken = "SELECT k FROM locked ORDER BY k LIMIT %s FOR UPDATE SKIP LOCKED"
    assert second.execute(taken, (1,)).fetchall() == [(2,)]
    assert second.execute(taken, (5,), prepare=True).fetchall() == [(2,), (3,)]
    first.execute("COMMIT")


def test_who_blocks_whom_is_told(connections):
    first, second, third = connections
    first.execute("BEGIN")
    first.execute("UPDATE locked SET v = 11 WHERE k = 1")
    update = "UPDATE locked SET v = 12 WHERE k = 1"
    waiting = Waiting(second, update)
    pids = first.info.backend_pid, second.info.backend_pid
    assert until_blocked(third, second) == [pids[0]]
    assert third.execute(WHO_BLOCKS_WHOM).fetchall() == [(pids[1], update, pids[0], "idle in transaction")]
    event = third.execute("SELECT wait_event_type, wait_event FROM pg_stat_activity WHERE pid = %s", (pids[1],))
    assert event.fetchone() == ("Lock", "transactionid")
    held = third.execute("SELECT pid, table_name, lock, count, blocked_by FROM weft_locks ORDER BY granted DESC").fetchall()
    assert held == [(pids[0], "locked", "rows for update", 1, None), (pids[1], "locked", "waits", None, pids[0])]
    relation = "SELECT mode FROM pg_locks WHERE relation = 'locked'::regclass AND granted"
    assert third.execute(relation).fetchall() == [("RowExclusiveLock",)]
    first.execute("COMMIT")
    assert waiting.ended() == "UPDATE 1"


def test_lock_timeout_ends_a_wait(connections):
    first, second, _ = connections
    first.execute("BEGIN")
    first.execute("UPDATE locked SET v = 11 WHERE k = 1")
    first.execute("INSERT INTO locked VALUES (9, 90)")
    second.execute("BEGIN")
    second.execute("SET LOCAL lock_timeout = '50ms'")
    with pytest.raises(psycopg.errors.LockNotAvailable, match="canceling statement due to lock timeout"):
        second.execute("UPDATE locked SET v = 12 WHERE k = 1")
    second.execute("ROLLBACK")
    assert second.execute("SHOW lock_timeout").fetchone() == ("0",)
    second.execute("SET lock_timeout = 50")
    for sql in (
        "INSERT INTO locked VALUES (9, 91)",
        "SELECT v FROM locked WHERE k = 1 FOR UPDATE",
        "DELETE FROM locked WHERE k = 1",
    ):
        with pytest.raises(psycopg.errors.LockNotAvailable):
            second.execute(sql)
    second.execute("RESET lock_timeout")
    waiting = Waiting(second, "UPDATE locked SET v = 12 WHERE k = 1")
    until_blocked(first, second)
    first.execute("COMMIT")
    assert waiting.ended() == "UPDATE 1"


def test_keys_that_others_insert_are_waited_for(connections):
    first, second, third = connections
    for sql, committed in (
        ("INSERT INTO locked VALUES (9, 2)", "23505"),
        ("INSERT INTO locked VALUES (9, 2) ON CONFLICT DO NOTHING", "INSERT 0 0"),
        ("INSERT INTO locked VALUES (9, 2) ON CONFLICT (k) DO UPDATE SET v = locked.v + 10", "INSERT 0 1"),
    ):
        for end, outcome in (("ROLLBACK", "INSERT 0 1"), ("COMMIT", committed)):
            third.execute("DELETE FROM locked WHERE k = 9")
            first.execute("BEGIN")
            first.execute("INSERT INTO locked VALUES (9, 1)")
            waiting = Waiting(second, sql)
            until_blocked(third, second)
            first.execute(end)
            assert waiting.ended() == outcome, sql


def test_each_row_of_a_queue_is_taken_once(server, connections):
    rows, workers = 120, 4
    connections[0].execute("CREATE TABLE queue (id INTEGER PRIMARY KEY, state TEXT)")
    connections[0].execute(f"INSERT INTO queue SELECT i, 'new' FROM generate_series(1, {rows}) AS s(i)")
    taken = []

    def work(number):
        with server.connect() as connection:
            while True:
                found = connection.execute(
                    "UPDATE queue SET state = %s WHERE id IN "
                    "(SELECT id FROM queue WHERE state = 'new' ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED) RETURNING id",
                    (f"by {number}",),
                ).fetchall()
                taken.extend(id for (id,) in found)
                if not found and connection.execute("SELECT count(*) FROM queue WHERE state = 'new'").fetchone() == (0,):
                    return

    threads = [threading.Thread(target=work, args=(number,)) for number in range(workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(300)
    connections[0].execute("DROP TABLE queue")
    assert sorted(taken) == list(range(1, rows + 1))
