"""What can be done with rows: fetch them, or hand them to other libraries."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ._errors import InterfaceError
from ._progress import Progress, progress_for
from ._sources import pyarrow

if TYPE_CHECKING:
    import numpy
    import pandas
    import polars
    from pyarrow import RecordBatchReader, Table

    from ._weft import Batch, Statement

Row = tuple[Any, ...]
Description = tuple[str, str, None, None, "int | None", "int | None", "bool | None"]

#: Rows that are shown of a result.
_SHOWN = 20


class Rows:
    """A result. Its rows are computed once, and may be read as often as one likes, by several threads."""

    _progress: bool | None = None

    def _started(self) -> Statement:
        """The statement, which is planned and returns rows."""
        raise NotImplementedError

    def _bar(self) -> Progress | None:
        return progress_for(self._progress)

    def _ended(self) -> Statement:
        statement, bar = self._started(), self._bar()
        try:
            statement.wait_end(bar)
        finally:
            if bar is not None:
                bar.end()
        return statement

    def _all(self) -> Any:
        """Whatever has ``__arrow_c_stream__`` of all rows. One of rows that are not kept raises Weft's errors."""
        return self._ended() if self._started().is_kept() else self.record_batch_reader()

    def _fetch(self, count: int | None) -> list[Row]:
        statement, bar = self._started(), self._bar()
        try:
            return statement.fetch(count, bar)
        finally:
            if bar is not None:
                bar.end()

    @property
    def columns(self) -> list[str]:
        """The names of the columns.

        >>> import weft
        >>> weft.sql("SELECT 1 AS a, 'x' AS b").columns
        ['a', 'b']
        """
        return [column[0] for column in self._started().columns()]

    @property
    def types(self) -> list[str]:
        """The types of the columns, as SQL calls them.

        >>> import weft
        >>> weft.sql("SELECT 1 AS a, 'x' AS b").types
        ['BIGINT', 'VARCHAR']
        """
        return [column[1] for column in self._started().columns()]

    def fetchone(self) -> Row | None:
        """The next row that was not fetched before; ``None`` behind the last one."""
        rows = self._fetch(1)
        return rows[0] if rows else None

    def fetchmany(self, size: int | None = None) -> list[Row]:
        """The next rows that were not fetched before, ``size`` at most."""
        size = 1 if size is None else size
        if size < 0:
            raise InterfaceError("fetchmany takes a number of rows, 0 or more")
        return self._fetch(size)

    def fetchall(self) -> list[Row]:
        """All rows that were not fetched before.

        >>> import weft
        >>> weft.sql("SELECT * FROM (VALUES (1, 'a'), (2, NULL)) AS t(n, s)").fetchall()
        [(1, 'a'), (2, None)]
        """
        return self._fetch(None)

    def rows(self) -> Iterator[Row]:
        """All rows, from the first one on, whatever was fetched."""
        for batch in self.batches():
            yield from batch.rows()

    def batches(self) -> Iterator[Batch]:
        """All batches of rows, which have ``__arrow_c_array__``. They come while the statement runs."""
        statement, number = self._started(), 0
        while True:
            bar = self._bar()
            try:
                batch = statement.wait_batch(number, bar)
            finally:
                if bar is not None:
                    bar.end()
            if batch is None:
                return
            yield batch
            number += 1

    def __arrow_c_schema__(self) -> object:
        return self._started().__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self._started().__arrow_c_stream__(requested_schema)

    def arrow(self) -> Table:
        """The rows as a table of PyArrow; nothing is copied.

        >>> import weft
        >>> weft.sql("SELECT 1 AS a").arrow().to_pydict()
        {'a': [1]}
        """
        rows = self._all()
        return rows.read_all() if hasattr(rows, "read_all") else pyarrow().table(rows)

    def record_batch_reader(self) -> RecordBatchReader:
        """A reader of PyArrow, which gives batches while the statement runs. The result may be larger than memory."""
        arrow = pyarrow()
        schema = arrow.schema(self._started())
        batches = (arrow.record_batch(batch) for batch in self.batches())
        return arrow.RecordBatchReader.from_batches(schema, batches)

    def pl(self) -> polars.DataFrame:
        """The rows as a frame of Polars; nothing is copied."""
        try:
            import polars
        except ImportError as error:
            raise InterfaceError("this needs Polars: pip install polars") from error
        return polars.DataFrame(self._all())

    def df(self, *, decimals: str = "float64") -> pandas.DataFrame:
        """The rows as a frame of pandas.

        Decimals come as ``float64``, or with ``decimals="arrow"`` as exact decimals of PyArrow, or with
        ``decimals="object"`` as objects of the class :class:`decimal.Decimal`.
        """
        return frame_of(self.arrow(), decimals)

    def numpy(self) -> dict[str, numpy.ndarray]:
        """The columns as arrays of NumPy, masked ones where there are NULLs. Decimals come as ``float64``.

        >>> import weft
        >>> weft.sql("SELECT n, n * 0.5 AS half FROM (VALUES (1), (2)) AS t(n)").numpy()["half"]
        array([0.5, 1. ])
        """
        import numpy

        table, columns = _plain(self.arrow(), True), {}
        for name, column in zip(table.column_names, table.columns, strict=True):
            if column.null_count == 0:
                columns[name] = column.to_numpy()
                continue
            mask = column.is_null().to_numpy()
            filled = _filled(column)
            values = column.to_numpy() if filled is None else filled
            columns[name] = numpy.ma.masked_array(values, mask=mask)
        return columns

    def _shown(self) -> tuple[list[tuple[str, str]], list[Row], bool]:
        """Columns, the first rows, and whether there are more."""
        statement = self._started()
        rows: list[Row] = []
        number = 0
        while len(rows) <= _SHOWN:
            batch = statement.wait_batch(number, None)
            if batch is None:
                break
            rows.extend(batch.rows())
            number += 1
        columns = [(column[0], column[1]) for column in statement.columns()]
        return columns, rows[:_SHOWN], len(rows) > _SHOWN

    def _as_text(self) -> str:
        columns, rows, has_more = self._shown()
        if not columns:
            command = self._started().command()
            return "" if command is None else command[0]
        cells = [[name for name, _ in columns], [data_type for _, data_type in columns]]
        cells += [[_text(value) for value in row] for row in rows]
        widths = [max(len(line[i]) for line in cells) for i in range(len(columns))]

        def line(values: list[str]) -> str:
            padded = (value.ljust(width) for value, width in zip(values, widths, strict=True))
            return "│ " + " │ ".join(padded) + " │"

        rule = "┼".join("─" * (width + 2) for width in widths)
        lines = [line(cells[0]), line(cells[1]), f"├{rule}┤", *map(line, cells[2:])]
        if has_more:
            lines.append("…")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        import html

        columns, rows, has_more = self._shown()
        head = "".join(
            f"<th>{html.escape(name)}<br><small>{html.escape(data_type)}</small></th>"
            for name, data_type in columns
        )
        body = "".join(
            "<tr>" + "".join(f"<td>{html.escape(_text(value))}</td>" for value in row) + "</tr>"
            for row in rows
        )
        more = f"<p>the first {len(rows)} rows</p>" if has_more else ""
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}"


def _text(value: object) -> str:
    text = "NULL" if value is None else str(value)
    text = text.replace("\n", "⏎")
    return text if len(text) <= 60 else text[:59] + "…"


def frame_of(table: Table, decimals: str) -> pandas.DataFrame:
    """A table as a frame of pandas: see :meth:`Rows.df`."""
    try:
        import pandas
    except ImportError as error:
        raise InterfaceError("this needs pandas: pip install pandas") from error
    if decimals not in ("float64", "arrow", "object"):
        raise InterfaceError("decimals is float64, arrow or object")
    arrow = pyarrow()
    table = _plain(table, decimals == "float64")

    def mapped(data_type: Any) -> Any:
        return pandas.ArrowDtype(data_type) if arrow.types.is_decimal(data_type) else None

    return table.to_pandas(
        types_mapper=mapped if decimals == "arrow" else None, date_as_object=False
    )


def _plain(table: Table, with_floats: bool) -> Table:
    """A table with types that NumPy has: texts that are no views, and floats in place of decimals."""
    arrow = pyarrow()
    for number, field in enumerate(table.schema):
        to = _plain_type(field.type, with_floats)
        if to != field.type:
            column = table.column(number).cast(to)
            table = table.set_column(number, arrow.field(field.name, to), column)
    return table


def _plain_type(data_type: Any, with_floats: bool) -> Any:
    arrow = pyarrow()
    if arrow.types.is_decimal(data_type) and with_floats:
        return arrow.float64()
    if data_type == arrow.string_view():
        return arrow.large_string()
    if data_type == arrow.binary_view():
        return arrow.large_binary()
    if arrow.types.is_list(data_type):
        return arrow.list_(_plain_type(data_type.value_type, with_floats))
    if arrow.types.is_struct(data_type):
        return arrow.struct(
            [(field.name, _plain_type(field.type, with_floats)) for field in data_type]
        )
    return data_type


def _filled(column: Any) -> Any:
    """The values of a column of numbers, booleans or times, with something in place of NULLs; ``None`` for others."""
    arrow = pyarrow()
    types = arrow.types
    data_type = column.type
    if types.is_boolean(data_type):
        return column.fill_null(False).to_numpy()
    if types.is_integer(data_type) or types.is_floating(data_type):
        return column.fill_null(0).to_numpy()
    return None
