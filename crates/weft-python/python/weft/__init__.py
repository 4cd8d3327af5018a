"""Weft: a SQL database for people with more data than memory and a fast SSD.

>>> import weft
>>> weft.sql("SELECT 6 * 7 AS answer").fetchall()
[(42,)]

:func:`connect` opens a database; the functions of this module that are named as methods of :class:`Connection` use a
temporary one that all of the program shares. Frames of pandas and Polars, tables of PyArrow and the like are relations
by the names of their variables:

>>> import pandas
>>> trips = pandas.DataFrame({"vendor": ["a", "b", "a"], "total": [10, 20, 30]})
>>> weft.sql("SELECT vendor, sum(total) AS total FROM trips GROUP BY vendor ORDER BY vendor").fetchall()
[('a', 40), ('b', 20)]

The module is as PEP 249 (DB-API 2.0) has it.
"""

from __future__ import annotations

import atexit
import os
import threading
from typing import TYPE_CHECKING, Any

from ._connection import Connection, Cursor, close_all, connect
from ._errors import (
    DatabaseError,
    DataError,
    Error,
    IntegrityError,
    InterfaceError,
    InternalError,
    NotSupportedError,
    OperationalError,
    OutOfMemoryError,
    ProgrammingError,
    QueryCancelledError,
    Warning,
)
from ._types import (
    BINARY,
    DATETIME,
    NUMBER,
    ROWID,
    STRING,
    Binary,
    Date,
    DateFromTicks,
    DBAPIType,
    Interval,
    Time,
    TimeFromTicks,
    Timestamp,
    TimestampFromTicks,
)
from ._weft import Batch, end_calls

if TYPE_CHECKING:
    from ._asyncio import AsyncResult
    from ._relation import Relation

    _shared: Connection
    append = _shared.append
    create_aggregate = _shared.create_aggregate
    create_function = _shared.create_function
    execute = _shared.execute
    execute_async = _shared.execute_async
    executemany = _shared.executemany
    query = _shared.query
    read_csv = _shared.read_csv
    read_json = _shared.read_json
    read_parquet = _shared.read_parquet
    register = _shared.register
    remove_function = _shared.remove_function
    sql = _shared.sql
    table = _shared.table
    unregister = _shared.unregister

__version__ = "0.1.0"

#: The version of DB-API.
apilevel = "2.0"
#: Threads may share the module, connections and cursors.
threadsafety = 3
#: Parameters are written ``?``; ``:1`` and ``:name`` work as well.
paramstyle = "qmark"

_default: Connection | None = None
_default_lock = threading.Lock()


def _after_fork() -> None:
    """Begins anew in a child: another thread may have held the lock."""
    global _default, _default_lock
    _default, _default_lock = None, threading.Lock()


os.register_at_fork(after_in_child=_after_fork)

atexit.register(close_all)
# Before that one: what was registered last is called first.
atexit.register(end_calls)


def default_connection() -> Connection:
    """The connection that the functions of this module use."""
    global _default
    with _default_lock:
        if _default is None or _default._process != os.getpid() or _default._database is None:
            _default = connect()
        return _default


def adbc_driver_path() -> str:
    """The file that managers of drivers of ADBC load; its entry point is ``AdbcDriverWeftInit``.

    :mod:`adbc_driver_weft.dbapi` connects by it.
    """
    import adbc_driver_weft

    return adbc_driver_weft.driver_path()


_FORWARDED = frozenset(
    {
        "append", "create_aggregate", "create_function", "execute", "execute_async", "executemany", "query",
        "read_csv", "read_json", "read_parquet", "register", "remove_function", "sql", "table",
        "unregister",
    }
)  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in _FORWARDED:
        return getattr(default_connection(), name)
    if name == "AsyncResult":
        from ._asyncio import AsyncResult

        return AsyncResult
    if name == "Relation":
        from ._relation import Relation

        return Relation
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "BINARY", "DATETIME", "NUMBER", "ROWID", "STRING",
    "AsyncResult", "Batch", "Binary", "Connection", "Cursor", "DBAPIType", "DataError",
    "DatabaseError", "Date", "DateFromTicks", "Error", "IntegrityError", "InterfaceError",
    "InternalError", "Interval", "NotSupportedError", "OperationalError", "OutOfMemoryError",
    "ProgrammingError", "QueryCancelledError", "Relation", "Time", "TimeFromTicks", "Timestamp",
    "TimestampFromTicks", "Warning", "adbc_driver_path", "apilevel", "connect", "default_connection", "paramstyle",
    "threadsafety",
]  # fmt: skip
