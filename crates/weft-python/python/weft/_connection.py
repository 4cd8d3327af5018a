"""Connections and cursors: DB-API 2.0 (PEP 249), and what goes beyond."""

from __future__ import annotations

import functools
import os
import sys
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from . import _errors, _weft
from ._errors import Error, InterfaceError, ProgrammingError, exception
from ._result import Row, Rows
from ._sources import required_source, sources_named

if TYPE_CHECKING:
    import types

    from ._asyncio import AsyncResult
    from ._relation import Relation

Parameters = Sequence[Any] | Mapping[str, Any]

#: Rows of parameters that executemany takes at a time.
_MANY = 1 << 16

#: The relation that executemany inserts from.
_PARAMETERS = "weft parameters"

#: Statements of a connection from which on it looks which of them are gone.
_STATEMENTS_MIN = 64

#: Texts that are longer are parsed each time for the relations that they name.
_KEPT_CHARACTERS = 4096

_PACKAGE = os.path.dirname(os.path.abspath(__file__))

#: Of statements that are executed again and again, as parsing takes a hundred microseconds.
_relation_names = functools.lru_cache(maxsize=256)(_weft.relation_names)


def caller() -> types.FrameType | None:
    """The frame that called the package."""
    frame: types.FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame = frame.f_back
    return frame


class Cursor(Rows):
    """A cursor: the result of the statement that it has executed last. Cursors of a connection share its session."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._statement: _weft.Statement | None = None
        self._is_closed = False
        self._row_count: int | None = None
        #: Rows that ``fetchmany`` fetches where it is not told how many.
        self.arraysize = 1

    @property
    def connection(self) -> Connection:
        """The connection of the cursor."""
        return self._connection

    @property
    def _progress(self) -> bool | None:  # type: ignore[override]
        return self._connection.progress

    def _check(self) -> None:
        if self._is_closed:
            raise InterfaceError("the cursor is closed")
        self._connection._check()

    def _started(self) -> _weft.Statement:
        self._check()
        if self._statement is None:
            raise InterfaceError("nothing was executed yet: call execute first")
        if self._statement.command() is not None:
            raise InterfaceError("the statement that was executed last returns no rows")
        return self._statement

    def execute(
        self, operation: str, parameters: Parameters | None = None, *, keep: bool = True
    ) -> Cursor:
        """Executes a statement, and returns the cursor.

        Parameters are written ``?`` or ``$1`` or ``:1`` and given as a list or tuple, or ``$name`` or ``:name`` and
        given as a dict. Tables that the database does not know are looked for among the caller's variables.
        With ``keep=False`` the rows can be read once, and nothing is kept of them.

        >>> import weft
        >>> con = weft.connect()
        >>> con.execute("SELECT $n + 1", {"n": 41}).fetchone()
        (42,)
        """
        self._check()
        self._row_count = None
        self._statement = None
        statement = self._connection._start(operation, parameters, caller(), keep)
        bar = self._bar()
        try:
            statement.wait_planned(bar)
            if statement.command() is not None:
                statement.wait_end(bar)
        finally:
            if bar is not None:
                bar.end()
        self._statement = statement
        return self

    def executemany(self, operation: str, seq_of_parameters: Iterable[Parameters]) -> Cursor:
        """Executes a statement once for each of many lists of parameters.

        An ``INSERT … VALUES`` of one row inserts all rows by a few statements, which is much faster.
        """
        self._check()
        insert = _weft.insert_of_rows(operation, _PARAMETERS)
        affected = 0
        for rows in _chunks(seq_of_parameters, _MANY):
            source = _weft.Relation.of_parameters(rows) if insert is not None else None
            if source is not None and insert is not None:
                sources = {_PARAMETERS: source}
                statement = self._connection._session_start(insert, None, sources, True)
                statement.wait_end()
                affected += _affected(statement)
                self._statement = statement
                continue
            for parameters in rows:
                self.execute(operation, parameters)
                if self._statement is not None and self._statement.command() is None:
                    raise ProgrammingError("executemany is for statements that return no rows")
                affected += max(self.rowcount, 0)
        self._row_count = affected
        return self

    @property
    def description(self) -> list[tuple[Any, ...]] | None:
        """The columns of the result, a tuple of seven for each; ``None`` if there is none."""
        if self._statement is None or self._statement.command() is not None:
            return None
        return [
            (name, data_type, None, None, precision, scale, null_ok)
            for name, data_type, precision, scale, null_ok in self._statement.columns()
        ]

    @property
    def rowcount(self) -> int:
        """Rows that the last statement has affected, or returned once it has ended; -1 if that is not known."""
        if self._row_count is not None:
            return self._row_count
        if self._statement is None:
            return -1
        if self._statement.command() is not None:
            command = self._statement.command()
            return -1 if command is None or command[1] is None else command[1]
        count = self._statement.row_count()
        return -1 if count is None else count

    def fetchmany(self, size: int | None = None) -> list[Row]:
        """The next rows that were not fetched before, ``arraysize`` at most where no size is given."""
        return super().fetchmany(self.arraysize if size is None else size)

    def __iter__(self) -> Iterator[Row]:
        while rows := self._fetch(1024):
            yield from rows

    def close(self) -> None:
        """Closes the cursor, and cancels what has not ended."""
        statement, self._statement, self._is_closed = self._statement, None, True
        if statement is not None:
            statement.cancel()

    def setinputsizes(self, sizes: Sequence[Any]) -> None:
        """Does nothing, as PEP 249 permits."""

    def setoutputsize(self, size: int, column: int | None = None) -> None:
        """Does nothing, as PEP 249 permits."""

    def __enter__(self) -> Cursor:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        if self._is_closed or self._statement is None or self._statement.command() is not None:
            return object.__repr__(self)
        return self._as_text()


def _affected(statement: _weft.Statement) -> int:
    command = statement.command()
    return 0 if command is None or command[1] is None else command[1]


def _chunks(rows: Iterable[Parameters], size: int) -> Iterator[list[Parameters]]:
    chunk: list[Parameters] = []
    for row in rows:
        chunk.append(row)
        if len(chunk) == size:
            yield chunk
            chunk = []
    if chunk:
        yield chunk


class _OpenDatabase:
    """A database that connections of this process share."""

    def __init__(self, path: str | None, read_only: bool, settings: dict[str, str]) -> None:
        self.read_only = read_only
        self.settings = settings
        self.core = _weft.Database(path, read_only, list(settings.items()))
        self.users = 0


_open: dict[tuple[int, str], _OpenDatabase] = {}
_open_lock = threading.Lock()


def _opened(path: str | None, read_only: bool, settings: dict[str, str]) -> _OpenDatabase:
    if path is None:
        database = _OpenDatabase(None, read_only, settings)
        database.users += 1
        return database
    key = (os.getpid(), os.path.realpath(path))
    with _open_lock:
        found = _open.get(key)
        if found is None:
            found = _open[key] = _OpenDatabase(path, read_only, settings)
        elif found.read_only != read_only or (settings and settings != found.settings):
            raise InterfaceError(
                f"the database {path} is open in this process with other settings: close its connections, "
                "or open it with the settings that it was opened with"
            )
        found.users += 1
        return found


def _let_go(database: _OpenDatabase) -> None:
    with _open_lock:
        database.users -= 1
        if database.users > 0:
            return
        for key, known in list(_open.items()):
            if known is database:
                del _open[key]
    database.core.close()


def _after_fork() -> None:
    """Begins anew in a child: another thread may have held the lock."""
    global _open_lock
    _open_lock = threading.Lock()
    _open.clear()


os.register_at_fork(after_in_child=_after_fork)

_connections: weakref.WeakSet[Connection] = weakref.WeakSet()


def close_all() -> None:
    """Closes all connections of this process."""
    for connection in list(_connections):
        if connection._process == os.getpid():
            connection.close()


class Connection:
    """A connection: a session with a database. It may be used by several threads, and each statement has a result of its own."""

    Warning = _errors.Warning
    Error = _errors.Error
    InterfaceError = _errors.InterfaceError
    DatabaseError = _errors.DatabaseError
    DataError = _errors.DataError
    OperationalError = _errors.OperationalError
    IntegrityError = _errors.IntegrityError
    InternalError = _errors.InternalError
    ProgrammingError = _errors.ProgrammingError
    NotSupportedError = _errors.NotSupportedError

    def __init__(self, database: _OpenDatabase, progress: bool | None) -> None:
        self._database: _OpenDatabase | None = database
        self._process = os.getpid()
        self._session = database.core.session()
        # Without callbacks: one of them would swallow a KeyboardInterrupt that comes when a statement goes.
        self._statements: list[weakref.ref[_weft.Statement]] = []
        self._swept_at = _STATEMENTS_MIN
        self._lock = threading.Lock()
        #: Whether progress bars are drawn; ``None`` leaves that to where the program runs.
        self.progress = progress
        _connections.add(self)

    def _check(self) -> None:
        if self._process != os.getpid():
            raise InterfaceError(
                "this connection was opened by another process, from which this one was forked: "
                "open a connection in each process, after the fork"
            )
        if self._database is None:
            raise InterfaceError("the connection is closed")

    def _session_start(
        self,
        sql: str,
        parameters: Parameters | None,
        sources: dict[str, _weft.Relation] | None,
        keep: bool,
    ) -> _weft.Statement:
        self._check()
        statement = self._session.start(sql, parameters, sources or None, keep)
        with self._lock:
            self._statements.append(weakref.ref(statement))
            if len(self._statements) >= self._swept_at:
                self._statements = [known for known in self._statements if known() is not None]
                self._swept_at = max(_STATEMENTS_MIN, 2 * len(self._statements))
        return statement

    def _cancel(self) -> None:
        with self._lock:
            known = list(self._statements)
        for statement in (statement() for statement in known):
            if statement is not None:
                statement.cancel()

    def _start(
        self,
        sql: str,
        parameters: Parameters | None,
        frame: types.FrameType | None,
        keep: bool,
    ) -> _weft.Statement:
        self._check()
        return self._session_start(sql, parameters, self._sources(sql, frame), keep)

    def _sources(
        self, sql: str, frame: types.FrameType | None
    ) -> dict[str, _weft.Relation] | None:
        """The relations among the caller's variables that a statement names."""
        try:
            names = _relation_names(sql) if len(sql) <= _KEPT_CHARACTERS else _weft.relation_names(sql)
        except Error:
            # The statement itself tells what is wrong with it.
            return None
        return sources_named(names, self._session.has_relation, frame)

    def cursor(self) -> Cursor:
        """A new cursor of this connection. Its settings and registered relations are those of the connection."""
        self._check()
        return Cursor(self)

    def execute(
        self, operation: str, parameters: Parameters | None = None, *, keep: bool = True
    ) -> Cursor:
        """Executes a statement by a new cursor, and returns the cursor: see :meth:`Cursor.execute`."""
        return self.cursor().execute(operation, parameters, keep=keep)

    def executemany(self, operation: str, seq_of_parameters: Iterable[Parameters]) -> Cursor:
        """Executes a statement for many lists of parameters by a new cursor: see :meth:`Cursor.executemany`.

        >>> import weft
        >>> con = weft.connect()
        >>> _ = con.execute("CREATE TABLE t (a INTEGER, b VARCHAR)")
        >>> con.executemany("INSERT INTO t VALUES (?, ?)", [(1, "x"), (2, "y")]).rowcount
        2
        """
        return self.cursor().executemany(operation, seq_of_parameters)

    def executescript(self, script: str) -> None:
        """Executes statements with semicolons between them, one after the other."""
        for statement in _weft.split(script):
            cursor = self.execute(statement)
            if cursor.description is not None:
                cursor._ended()

    def execute_async(
        self, operation: str, parameters: Parameters | None = None, *, keep: bool = True
    ) -> AsyncResult:
        """Starts a statement for a coroutine, which awaits what is returned: see :class:`weft.AsyncResult`."""
        from ._asyncio import AsyncResult

        return AsyncResult(self, self._start(operation, parameters, caller(), keep))

    def sql(self, query: str, parameters: Parameters | None = None) -> Relation:
        """A query as a relation, which is executed when its rows are first asked for. Commands are executed at once.

        >>> import weft
        >>> con = weft.connect()
        >>> con.sql("SELECT * FROM (VALUES (1), (2), (3)) AS t(n)").filter("n > 1").fetchall()
        [(2,), (3,)]
        """
        from ._relation import relation_of_query

        return relation_of_query(self, query, parameters, caller())

    query = sql

    def table(self, name: str) -> Relation:
        """A table, view or registered relation, by its name as it is, without quotes."""
        from ._relation import relation_of_name

        self._check()
        return relation_of_name(self, name)

    view = table

    def read_csv(self, path: str | os.PathLike[str], **options: Any) -> Relation:
        """A CSV file, or those that a pattern or a list stands for, as a relation, with the options of ``read_csv`` in SQL."""
        return self._read("read_csv", path, options)

    def read_parquet(self, path: str | os.PathLike[str], **options: Any) -> Relation:
        """A Parquet file, or those that a pattern or a list stands for, as a relation."""
        return self._read("read_parquet", path, options)

    def read_json(self, path: str | os.PathLike[str], **options: Any) -> Relation:
        """A JSON file, or those that a pattern or a list stands for, as a relation."""
        return self._read("read_json", path, options)

    def _read(self, function: str, path: str | os.PathLike[str], options: dict[str, Any]) -> Relation:
        from ._relation import relation_of_file

        self._check()
        return relation_of_file(self, function, path, options)

    def register(self, name: str, table: Any) -> Connection:
        """Has statements find a frame, table or reader by a name, in place of one that had it.

        >>> import pandas, weft
        >>> con = weft.connect().register("numbers", pandas.DataFrame({"n": [1, 2, 3]}))
        >>> con.execute("SELECT sum(n) FROM numbers").fetchone()
        (6,)
        """
        self._check()
        self._session.register(name, required_source(table))
        return self

    def unregister(self, name: str) -> Connection:
        """Has statements find what was registered no more."""
        self._check()
        if not self._session.unregister(name):
            raise ProgrammingError(f"no relation {name} is registered")
        return self

    def append(self, table: str, frame: Any, *, by_name: bool = False) -> int:
        """Inserts the rows of a frame into a table, column by column or by the columns' names, and returns how many."""
        self._check()
        source = required_source(frame)
        columns = ", ".join(map(_weft.quoted, source.columns()))
        target = f"{_weft.quoted(table)} ({columns})" if by_name else _weft.quoted(table)
        sql = f"INSERT INTO {target} SELECT {columns} FROM {_weft.quoted(_PARAMETERS)}"
        statement = self._session_start(sql, None, {_PARAMETERS: source}, True)
        statement.wait_end()
        return _affected(statement)

    def create_function(
        self,
        name: str,
        function: Callable[..., Any],
        parameters: Sequence[Any] | None = None,
        returns: Any = None,
        *,
        type: str = "native",  # noqa: A002 - as others name it
        null_handling: str = "default",
        side_effects: bool = False,
    ) -> Connection:
        """Adds a scalar function that SQL can call.

        Types are names of SQL, types of PyArrow, or classes such as ``int``; where they are left out, those of the
        function's annotations. With ``type="arrow"`` the function is called with arrays of PyArrow, and returns one.
        With ``null_handling="special"`` it is called with ``None`` for NULL, otherwise NULL makes NULL. With
        ``side_effects`` it is called for each row, even if it always gets the same values.

        >>> import weft
        >>> con = weft.connect().create_function("plus_one", lambda x: x + 1, ["BIGINT"], "BIGINT")
        >>> con.execute("SELECT plus_one(41), plus_one(NULL)").fetchone()
        (42, None)
        """
        from ._functions import add_function

        self._check()
        add_function(
            self._session, name, function, parameters, returns, type, null_handling, side_effects
        )
        return self

    def create_aggregate(
        self,
        name: str,
        function: Callable[..., Any],
        parameters: Sequence[Any] | None = None,
        returns: Any = None,
        *,
        type: str = "native",  # noqa: A002 - as others name it
        null_handling: str = "default",
    ) -> Connection:
        """Adds an aggregate function, which is called once for each group, with a list of values for each parameter.

        With ``type="arrow"`` it is called with arrays of PyArrow. Rows with NULL are left out, and a group without rows
        gets NULL; with ``null_handling="special"`` the function gets all rows. The values of a group are in memory.

        >>> import statistics, weft
        >>> con = weft.connect().create_aggregate("middle", statistics.median, ["DOUBLE"], "DOUBLE")
        >>> con.execute("SELECT middle(n) FROM (VALUES (1), (2), (10)) AS t(n)").fetchone()
        (2.0,)
        """
        from ._functions import add_function

        self._check()
        add_function(
            self._session, name, function, parameters, returns, type, null_handling, False, True
        )
        return self

    def remove_function(self, name: str) -> Connection:
        """Removes a function that was added."""
        self._check()
        if not self._session.remove_function(name):
            raise ProgrammingError(f"no function {name} was added")
        return self

    def duplicate(self) -> Connection:
        """A connection of its own with the same database: settings and registered relations are not shared."""
        self._check()
        assert self._database is not None
        with _open_lock:
            self._database.users += 1
        return Connection(self._database, self.progress)

    def interrupt(self) -> None:
        """Cancels the statements that still run, from any thread. Whoever waits for one gets :class:`weft.QueryCancelledError`."""
        self._check()
        self._cancel()

    def tables(self) -> list[str]:
        """The names of the tables and views, in order."""
        self._check()
        return self._session.tables()

    def stats(self) -> dict[str, int]:
        """What the database has done and holds."""
        self._check()
        assert self._database is not None
        return self._database.core.stats()

    def begin(self) -> Connection:
        """Begins a transaction: statements see one state of the database and what they change themselves, and others see
        nothing of that before :meth:`commit`. Without it each statement commits by itself, at its end.

        >>> import weft
        >>> con = weft.connect()
        >>> _ = con.execute("CREATE TABLE t (n INTEGER)")
        >>> _ = con.begin().execute("INSERT INTO t VALUES (1)")
        >>> con.rollback()
        >>> con.execute("SELECT count(*) FROM t").fetchone()
        (0,)
        """
        self.execute("BEGIN")
        return self

    def commit(self) -> None:
        """Commits the transaction, if there is one: what it has changed is durable, and seen by others, when this returns.

        Raises :class:`weft.OperationalError` with the ``sqlstate`` ``40001`` if another transaction has committed a change
        of the same rows or keys since this one began, which is rolled back then and may be run again; and with ``25P02`` if
        one of its statements has failed, after which it can only be rolled back, as it is then.
        """
        self._check()
        status = self._session.transaction_status()
        if status == "failed":
            self.execute("ROLLBACK")
            raise exception(
                "transaction_aborted",
                "a statement of the transaction has failed: it was rolled back",
            )
        if status == "in transaction":
            self.execute("COMMIT")

    def rollback(self) -> None:
        """Rolls the transaction back, if there is one: nothing of what it has changed is left."""
        self._check()
        if self._session.transaction_status() != "idle":
            self.execute("ROLLBACK")

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction was begun, and neither committed nor rolled back."""
        self._check()
        return self._session.transaction_status() != "idle"

    def close(self) -> None:
        """Closes the connection. Its statements are cancelled, its transaction is rolled back; what was committed stays."""
        if self._process != os.getpid():
            return
        database, self._database = self._database, None
        if database is None:
            return
        self._cancel()
        self._session.close()
        _let_go(database)

    def __enter__(self) -> Connection:
        self._check()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def connect(
    path: str | os.PathLike[str] | None = None,
    *,
    memory_limit: str | int | None = None,
    threads: int | None = None,
    read_only: bool = False,
    config: Mapping[str, Any] | None = None,
    progress: bool | None = None,
) -> Connection:
    """Opens the database in a directory, or creates it. Without a path (or with ``":memory:"``) it is a temporary one,
    which may be larger than memory all the same.

    ``memory_limit`` is a number of bytes or a text such as ``"4GiB"``, ``threads`` the number of threads, ``config``
    has further settings by their names in ``SHOW ALL``. Connections of one process with one path share the database.

    >>> import weft
    >>> with weft.connect(memory_limit="512MiB", threads=2) as con:
    ...     con.execute("SELECT 6 * 7 AS answer").fetchall()
    [(42,)]
    """
    settings = {name: str(value) for name, value in (config or {}).items()}
    if memory_limit is not None:
        settings["memory_limit"] = str(memory_limit)
    if threads is not None:
        settings["threads"] = str(threads)
    where = None if path is None or os.fspath(path) == ":memory:" else os.fspath(path)
    return Connection(_opened(where, read_only, settings), progress)
