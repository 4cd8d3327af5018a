"""DB-API 2.0 over ADBC: cursors whose results are Arrow data.

>>> from adbc_driver_weft import dbapi
>>> with dbapi.connect() as connection, connection.cursor() as cursor:
...     _ = cursor.execute("SELECT 6 * 7 AS answer")
...     cursor.fetchone()
(42,)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import adbc_driver_manager
from adbc_driver_manager.dbapi import (
    BINARY,
    DATETIME,
    NUMBER,
    ROWID,
    STRING,
    Connection,
    Cursor,
    DatabaseError,
    DataError,
    Date,
    DateFromTicks,
    Error,
    IntegrityError,
    InterfaceError,
    InternalError,
    NotSupportedError,
    OperationalError,
    ProgrammingError,
    Time,
    TimeFromTicks,
    Timestamp,
    TimestampFromTicks,
    Warning,
)

import adbc_driver_weft

apilevel = "2.0"
#: Threads may share the module, but not connections.
threadsafety = 1
paramstyle = "qmark"


def connect(
    uri: str | None = None,
    db_kwargs: Mapping[str, str] | None = None,
    conn_kwargs: Mapping[str, str] | None = None,
    **kwargs: Any,
) -> Connection:
    """Connects to the database in a directory, or to a temporary one.

    ``uri`` is a path or ``weft:///path``, ``db_kwargs`` has options of the database (:class:`adbc_driver_weft.DatabaseOptions`),
    ``conn_kwargs`` those of the connection. As DB-API demands, statements are within a transaction until ``commit()``, unless
    ``autocommit=True`` is among ``kwargs``, which go to the connection of ``adbc_driver_manager.dbapi``.
    """
    database = adbc_driver_weft.connect(uri, db_kwargs)
    connection = None
    try:
        connection = adbc_driver_manager.AdbcConnection(database, **dict(conn_kwargs or {}))
        return Connection(database, connection, **kwargs)
    except BaseException:
        if connection is not None:
            connection.close()
        database.close()
        raise


__all__ = [
    "BINARY", "DATETIME", "NUMBER", "ROWID", "STRING",
    "Connection", "Cursor", "DataError", "DatabaseError", "Date", "DateFromTicks", "Error",
    "IntegrityError", "InterfaceError", "InternalError", "NotSupportedError", "OperationalError",
    "ProgrammingError", "Time", "TimeFromTicks", "Timestamp", "TimestampFromTicks", "Warning",
    "apilevel", "connect", "paramstyle", "threadsafety",
]  # fmt: skip
