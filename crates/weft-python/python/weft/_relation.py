"""Relations: queries that are put together step by step, and executed once, when their rows are first asked for."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from . import _weft
from ._errors import InterfaceError
from ._result import Row, Rows

if TYPE_CHECKING:
    import types

    from ._connection import Connection, Parameters

Sources = dict[str, _weft.Relation]


class Plan(str):
    """A plan as text, which Jupyter shows in a fixed font."""

    def _repr_html_(self) -> str:
        import html

        return f"<pre>{html.escape(self)}</pre>"

    def __repr__(self) -> str:
        return str(self)


class Relation(Rows):
    """A query. Each method that changes it returns another relation, and leaves this one as it is.

    >>> import weft
    >>> numbers = weft.sql("SELECT * FROM (VALUES (1, 'a'), (2, 'b'), (3, 'b')) AS t(n, s)")
    >>> numbers.filter("n > 1").aggregate("s, sum(n) AS total").order("s").fetchall()
    [('b', 5)]
    """

    def __init__(
        self,
        connection: Connection,
        query: str,
        parameters: Parameters | None = None,
        sources: Sources | None = None,
        *,
        is_ordered: bool = False,
        alias: str = "t",
        statement: _weft.Statement | None = None,
    ) -> None:
        self._connection = connection
        self._query = query
        self._parameters = parameters
        self._sources = sources or {}
        self._is_ordered = is_ordered
        self._alias = alias
        self._lock = threading.Lock()
        self._statement = statement

    @property
    def _progress(self) -> bool | None:  # type: ignore[override]
        return self._connection.progress

    @property
    def query(self) -> str:
        """The query, as SQL."""
        return self._query

    def _started(self) -> _weft.Statement:
        with self._lock:
            if self._statement is None:
                self._statement = self._connection._session_start(
                    self._query, self._parameters, self._sources, True
                )
            statement = self._statement
        bar = self._bar()
        try:
            statement.wait_planned(bar)
        finally:
            if bar is not None:
                bar.end()
        return statement

    def execute(self) -> Relation:
        """Starts the query, if it was not started yet."""
        self._started()
        return self

    def _from(self) -> str:
        return f"({self._query}) AS {_weft.quoted(self._alias)}"

    def _with(self, query: str, other: Relation | None = None, *, is_ordered: bool = False) -> Relation:
        sources = dict(self._sources)
        parameters = self._parameters
        if other is not None:
            if other._connection is not self._connection:
                raise InterfaceError("relations of different connections cannot be put together")
            sources.update(other._sources)
            if other._parameters:
                if parameters:
                    parameters = _both(parameters, other._parameters)
                else:
                    parameters = other._parameters
        return Relation(self._connection, query, parameters, sources, is_ordered=is_ordered)

    def alias(self, name: str) -> Relation:
        """The relation with a name, for conditions of joins."""
        made = self._with(self._query, is_ordered=self._is_ordered)
        made._alias = name
        return made

    def filter(self, condition: str) -> Relation:
        """The rows that satisfy a condition of SQL."""
        return self._with(f"SELECT * FROM {self._from()} WHERE {condition}")

    def project(self, *expressions: str) -> Relation:
        """Columns, or expressions of SQL."""
        return self._with(f"SELECT {', '.join(expressions) or '*'} FROM {self._from()}")

    select = project

    def aggregate(self, expressions: str | Sequence[str], group_by: str | None = None) -> Relation:
        """Groups of rows: by ``group_by``, or by those of the expressions that have no aggregate function in them.

        With ``group_by=""`` all rows are one group.
        """
        text = expressions if isinstance(expressions, str) else ", ".join(expressions)
        by = "ALL" if group_by is None else group_by
        grouped = f" GROUP BY {by}" if by else ""
        return self._with(f"SELECT {text} FROM {self._from()}{grouped}")

    def distinct(self) -> Relation:
        """The rows, each once."""
        return self._with(f"SELECT DISTINCT * FROM {self._from()}")

    def order(self, *keys: str) -> Relation:
        """The rows in the order of keys, such as ``"a DESC"``."""
        return self._with(
            f"SELECT * FROM {self._from()} ORDER BY {', '.join(keys)}", is_ordered=True
        )

    sort = order

    def limit(self, count: int, offset: int = 0) -> Relation:
        """So many rows at most, after those that are left out."""
        behind = f" OFFSET {int(offset)}" if offset else ""
        query = self._query if self._is_ordered else f"SELECT * FROM {self._from()}"
        return self._with(f"{query} LIMIT {int(count)}{behind}")

    def join(self, other: Relation, condition: str | Sequence[str], how: str = "inner") -> Relation:
        """Pairs of rows that satisfy a condition, or have the same values in columns.

        ``condition`` is an expression that names the relations by their aliases, or a list of columns' names. ``how``
        is ``inner``, ``left``, ``right``, ``full``, ``semi`` or ``anti``.
        """
        kinds = {"inner", "left", "right", "full", "semi", "anti"}
        kind = how.lower().removesuffix(" outer")
        if kind not in kinds:
            raise InterfaceError(f"a join is one of {', '.join(sorted(kinds))}, not {how}")
        right = other if other._alias != self._alias else other.alias(f"{other._alias}2")
        if isinstance(condition, str):
            on = f"ON {condition}"
        else:
            on = f"USING ({', '.join(map(_weft.quoted, condition))})"
        query = f"SELECT * FROM {self._from()} {kind.upper()} JOIN {right._from()} {on}"
        return self._with(query, other)

    def cross(self, other: Relation) -> Relation:
        """All pairs of rows."""
        right = other if other._alias != self._alias else other.alias(f"{other._alias}2")
        return self._with(f"SELECT * FROM {self._from()} CROSS JOIN {right._from()}", other)

    def union(self, other: Relation) -> Relation:
        """The rows of both, as often as they occur."""
        return self._set("UNION ALL", other)

    def intersect(self, other: Relation) -> Relation:
        """The rows that are in both, each once."""
        return self._set("INTERSECT", other)

    def except_(self, other: Relation) -> Relation:
        """The rows that are not in the other, each once."""
        return self._set("EXCEPT", other)

    def _set(self, operator: str, other: Relation) -> Relation:
        query = f"SELECT * FROM {self._from()} {operator} SELECT * FROM {other._from()}"
        return self._with(query, other)

    def count(self) -> int:
        """The number of rows."""
        row = self._with(f"SELECT count(*) FROM {self._from()}").fetchone()
        assert row is not None
        count: int = row[0]
        return count

    def explain(self, *, analyze: bool = False) -> Plan:
        """The plan; with ``analyze`` as it was executed, with what each part has done."""
        words = "EXPLAIN ANALYZE" if analyze else "EXPLAIN"
        rows = self._with(f"{words} {self._query}").fetchall()
        return Plan("\n".join(str(row[-1]) for row in rows))

    def create(self, name: str, *, replace: bool = False) -> Relation:
        """Makes a table of the rows, and returns it."""
        words = "CREATE OR REPLACE TABLE" if replace else "CREATE TABLE"
        self._command(f"{words} {_weft.quoted(name)} AS {self._query}")
        return self._connection.table(name)

    def insert_into(self, table: str) -> int:
        """Inserts the rows into a table, and returns how many."""
        return self._command(f"INSERT INTO {_weft.quoted(table)} {self._query}")

    def to_parquet(self, path: str | os.PathLike[str]) -> int:
        """Writes the rows into a Parquet file, and returns how many."""
        return self._command(f"COPY ({self._query}) TO {_literal(os.fspath(path))} (FORMAT parquet)")

    def to_csv(self, path: str | os.PathLike[str]) -> int:
        """Writes the rows into a CSV file, and returns how many."""
        return self._command(f"COPY ({self._query}) TO {_literal(os.fspath(path))} (FORMAT csv)")

    def _command(self, sql: str) -> int:
        from ._connection import _affected

        statement = self._connection._session_start(sql, self._parameters, self._sources, True)
        bar = self._bar()
        try:
            statement.wait_end(bar)
        finally:
            if bar is not None:
                bar.end()
        return _affected(statement)

    def __iter__(self) -> Iterator[Row]:
        return self.rows()

    def __len__(self) -> int:
        ended = self._ended().row_count()
        return ended if ended is not None else 0

    def __bool__(self) -> bool:
        return True

    def __repr__(self) -> str:
        return self._as_text()


def _both(left: Parameters, right: Parameters) -> Parameters:
    if isinstance(left, Mapping) and isinstance(right, Mapping):
        clashing = [name for name in left if name in right and left[name] is not right[name]]
        if not clashing:
            return {**left, **right}
    raise InterfaceError(
        "both relations have parameters: give them different names, as in {'a': 1} and {'b': 2}"
    )


def _literal(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).upper()
    if isinstance(value, (int, float)):
        return str(value)
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_literal, value))}]"
    if isinstance(value, Mapping):
        fields = (f"{_literal(str(name))}: {_literal(item)}" for name, item in value.items())
        return f"{{{', '.join(fields)}}}"
    text = str(os.fspath(value) if isinstance(value, os.PathLike) else value)
    return "'" + text.replace("'", "''") + "'"


def relation_of_query(
    connection: Connection,
    query: str,
    parameters: Parameters | None,
    frame: types.FrameType | None,
) -> Relation:
    """A query as a relation, once it is planned. A command is executed."""
    text = query.strip().rstrip(";")
    sources = connection._sources(text, frame) or {}
    statement = connection._session_start(text, parameters, sources, True)
    relation = Relation(connection, text, parameters, sources, statement=statement)
    relation._started()
    if statement.command() is not None:
        statement.wait_end()
    return relation


def relation_of_name(connection: Connection, name: str) -> Relation:
    """A table, view or registered relation."""
    relation = Relation(connection, f"SELECT * FROM {_weft.quoted(name)}")
    relation._alias = name
    if not connection._session.has_relation(name):
        relation._started()
    return relation


def relation_of_file(
    connection: Connection, function: str, path: Any, options: dict[str, Any]
) -> Relation:
    """Files as a relation."""
    if options or not isinstance(path, (str, os.PathLike)):
        given = "".join(f", {name} = {_literal(value)}" for name, value in options.items())
        return Relation(connection, f"SELECT * FROM {function}({_literal(path)}{given})").execute()
    name = os.fspath(path)
    try:
        return Relation(connection, f"SELECT * FROM {function}({_literal(name)})").execute()
    except Exception as error:
        if "function" not in str(error):
            raise
    quoted = '"' + name.replace('"', '""') + '"'
    return Relation(connection, f"SELECT * FROM {quoted}").execute()
