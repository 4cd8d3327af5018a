"""Exceptions, as DB-API 2.0 has them (PEP 249), by kinds of errors and SQLSTATE classes."""

from __future__ import annotations


class Warning(Exception):  # noqa: A001 - the name that PEP 249 gives it
    """Something important that is no error."""


class Error(Exception):
    """Whatever Weft raises.

    ``sqlstate`` is the five characters of SQL's standard, ``hint`` what can be done about it, ``position`` the line
    and column in the statement, both from 1 on; each may be ``None``.
    """

    sqlstate: str | None = None
    hint: str | None = None
    position: tuple[int, int] | None = None


class InterfaceError(Error):
    """The package was used as it cannot be: a closed connection, a connection of another process."""

    sqlstate = "08003"


class DatabaseError(Error):
    """Whatever concerns the database."""


class DataError(DatabaseError):
    """A value cannot be computed or stored: a cast, a division by zero, a bad file."""

    sqlstate = "22000"


class OperationalError(DatabaseError):
    """The operating system, the storage or the memory."""

    sqlstate = "58000"


class IntegrityError(DatabaseError):
    """A constraint does not hold."""

    sqlstate = "23000"


class InternalError(DatabaseError):
    """A bug of Weft."""

    sqlstate = "XX000"


class ProgrammingError(DatabaseError):
    """The statement is wrong: its syntax, its names, its types, its parameters."""

    sqlstate = "42000"


class NotSupportedError(DatabaseError):
    """Correct SQL that Weft does not run yet."""

    sqlstate = "0A000"


class OutOfMemoryError(OperationalError, MemoryError):
    """``memory_limit`` or ``max_temp_size`` does not suffice."""

    sqlstate = "53200"


class QueryCancelledError(OperationalError):
    """The statement was cancelled."""

    sqlstate = "57014"


_CLASSES: dict[str, tuple[type[Error], str]] = {
    "syntax": (ProgrammingError, "42601"),
    "semantic": (ProgrammingError, "42000"),
    "already_exists": (ProgrammingError, "42P07"),
    "not_supported": (NotSupportedError, "0A000"),
    "data": (DataError, "22000"),
    "setting": (ProgrammingError, "22023"),
    "out_of_memory": (OutOfMemoryError, "53200"),
    "io": (OperationalError, "58030"),
    "storage": (OperationalError, "58000"),
    "conflict": (OperationalError, "40001"),
    "deadlock": (OperationalError, "40P01"),
    "lock_not_available": (OperationalError, "55P03"),
    "transaction_aborted": (OperationalError, "25P02"),
    "no_active_transaction": (ProgrammingError, "25P01"),
    "active_transaction": (ProgrammingError, "25001"),
    "read_only_transaction": (ProgrammingError, "25006"),
    "forbidden": (ProgrammingError, "42501"),
    "no_savepoint": (ProgrammingError, "3B001"),
    "cancelled": (QueryCancelledError, "57014"),
    "internal": (InternalError, "XX000"),
    "interface": (InterfaceError, "08003"),
    "integrity": (IntegrityError, "23000"),
    "unique_violation": (IntegrityError, "23505"),
    "cardinality_violation": (ProgrammingError, "21000"),
    "check_violation": (IntegrityError, "23514"),
    "foreign_key_violation": (IntegrityError, "23503"),
}


def exception(
    kind: str, message: str, hint: str | None = None, position: tuple[int, int] | None = None
) -> Error:
    """The exception for an error of a kind."""
    if kind == "data" and "NOT NULL" in message:
        kind = "integrity"
    cls, sqlstate = _CLASSES[kind]
    text = message
    if position is not None:
        text += f" (line {position[0]}, column {position[1]})"
    if hint is not None:
        text += f"\nhint: {hint}"
    error = cls(text)
    error.sqlstate = sqlstate
    error.hint = hint
    error.position = position
    return error
