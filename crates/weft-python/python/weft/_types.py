"""Types of DB-API 2.0, and values that Python's own classes do not have."""

from __future__ import annotations

import datetime
import time
from typing import NamedTuple


class Interval(NamedTuple):
    """An interval of SQL. One without months comes as :class:`datetime.timedelta`, as far as that can hold it.

    >>> import weft
    >>> weft.sql("SELECT INTERVAL '1 month 3 days'").fetchone()
    (Interval(months=1, days=3, nanoseconds=0),)
    """

    months: int
    days: int
    nanoseconds: int


class DBAPIType:
    """A group of SQL's types: equal to each of their names, as ``cursor.description`` has them."""

    def __init__(self, name: str, *types: str) -> None:
        self.name = name
        self.types = frozenset(types)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, DBAPIType):
            return self.name == other.name
        if isinstance(other, str):
            return other in self.types or other.partition("(")[0] in self.types
        return NotImplemented

    def __hash__(self) -> int:
        return hash(self.name)

    def __repr__(self) -> str:
        return f"weft.{self.name}"


STRING = DBAPIType("STRING", "VARCHAR")
BINARY = DBAPIType("BINARY", "BLOB")
NUMBER = DBAPIType(
    "NUMBER", "BOOLEAN", "TINYINT", "SMALLINT", "INTEGER", "BIGINT", "TINYINT UNSIGNED",
    "SMALLINT UNSIGNED", "INTEGER UNSIGNED", "BIGINT UNSIGNED", "HALF", "REAL", "DOUBLE", "DECIMAL",
)  # fmt: skip
DATETIME = DBAPIType(
    "DATETIME", "DATE", "TIME", "TIMESTAMP", "TIMESTAMP WITH TIME ZONE", "INTERVAL",
)  # fmt: skip
ROWID = DBAPIType("ROWID")

Date = datetime.date
Time = datetime.time
Timestamp = datetime.datetime
Binary = bytes


def DateFromTicks(ticks: float) -> datetime.date:  # noqa: N802 - the name that PEP 249 gives it
    """The local date at so many seconds since 1970."""
    return datetime.date(*time.localtime(ticks)[:3])


def TimeFromTicks(ticks: float) -> datetime.time:  # noqa: N802
    """The local time of day at so many seconds since 1970."""
    return datetime.time(*time.localtime(ticks)[3:6])


def TimestampFromTicks(ticks: float) -> datetime.datetime:  # noqa: N802
    """The local date and time at so many seconds since 1970."""
    return datetime.datetime(*time.localtime(ticks)[:6])
