"""Frames, tables and readers of other libraries as relations of SQL. No library is imported for it."""

from __future__ import annotations

import sys
import threading
import weakref
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ._errors import InterfaceError
from ._weft import Relation as Source

if TYPE_CHECKING:
    import types


def pyarrow() -> Any:
    """PyArrow.

    Raises an error that says how to get it.
    """
    try:
        import pyarrow
    except ImportError as error:
        raise InterfaceError("this needs PyArrow: pip install pyarrow") from error
    return pyarrow


_COMPREHENSIONS = ("<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>")

#: Readers that were read.
_read: weakref.WeakSet[Any] = weakref.WeakSet()
_read_lock = threading.Lock()


def _library(value: object) -> str:
    return type(value).__module__.partition(".")[0]


def source_of(value: Any) -> Source | None:
    """The relation that an object stands for; ``None`` if it stands for none."""
    if isinstance(value, Source):
        return value
    library, name = _library(value), type(value).__name__
    if library == "pyarrow":
        return _of_pyarrow(value)
    if library == "pandas":
        return _of_pandas(value)
    if library == "polars":
        return _of_polars(value)
    if library == "numpy" and name in ("ndarray", "recarray"):
        return _of_numpy(value)
    if isinstance(value, list) and value and all(isinstance(row, Mapping) for row in value):
        return _of_mappings(value)
    if hasattr(value, "__arrow_c_stream__"):
        if callable(getattr(value, "read_next_batch", None)) or hasattr(value, "__next__"):
            has_schema = hasattr(value, "__arrow_c_schema__")
            is_reader = has_schema and hasattr(value, "__weakref__")
            return _of_reader(value if is_reader else pyarrow().RecordBatchReader.from_stream(value))
        return Source.reader(value, lambda _columns: value, False)
    if hasattr(value, "__arrow_c_array__"):
        return Source.in_memory(pyarrow().Table.from_batches([pyarrow().record_batch(value)]))
    return None


def _of_reader(reader: Any) -> Source:
    """A reader that can be read once."""

    def opened(_columns: list[str]) -> Any:
        with _read_lock:
            is_read = reader in _read
            _read.add(reader)
        if is_read:
            raise InterfaceError(
                "the reader was read before, and can be read only once: make a table of it to read it more often"
            )
        return reader

    return Source.reader(reader, opened, False)


def _of_pyarrow(value: Any) -> Source | None:
    arrow = pyarrow()
    if isinstance(value, arrow.Table):
        return Source.in_memory(value)
    if isinstance(value, arrow.RecordBatch):
        return Source.in_memory(arrow.Table.from_batches([value]))
    if isinstance(value, arrow.RecordBatchReader):
        return _of_reader(value)
    dataset = sys.modules.get("pyarrow.dataset")
    if dataset is not None and isinstance(value, dataset.Dataset):
        return Source.reader(
            value.schema, lambda columns: value.scanner(columns=columns).to_reader(), True
        )
    if dataset is not None and isinstance(value, dataset.Scanner):
        return _of_reader(value.to_reader())
    return None


def _of_pandas(value: Any) -> Source | None:
    name = type(value).__name__
    if name == "Series":
        value = value.to_frame(value.name if value.name is not None else "column0")
    elif not hasattr(value, "columns"):
        return None
    return Source.in_memory(pyarrow().Table.from_pandas(value, preserve_index=False))


def _of_polars(value: Any) -> Source | None:
    name = type(value).__name__
    if name == "Series":
        value = value.to_frame(value.name or "column0")
        name = "DataFrame"
    if name == "DataFrame":
        return Source.in_memory(value)
    if name == "LazyFrame":
        return Source.reader(
            value.head(0).collect(), lambda columns: value.select(columns).collect(), True
        )
    return None


def _of_numpy(value: Any) -> Source | None:
    arrow = pyarrow()
    if value.dtype.names is not None:
        flat = value.reshape(-1)
        return Source.in_memory(
            arrow.table({name: arrow.array(flat[name]) for name in value.dtype.names})
        )
    if value.ndim == 1:
        return Source.in_memory(arrow.table({"column0": arrow.array(value)}))
    if value.ndim == 2:
        return Source.in_memory(
            arrow.table({f"column{i}": arrow.array(value[:, i]) for i in range(value.shape[1])})
        )
    return None


def _of_mappings(rows: list[Mapping[str, Any]]) -> Source:
    arrow = pyarrow()
    names: dict[str, None] = {}
    for row in rows:
        names.update(dict.fromkeys(row))
    columns = {name: [row.get(name) for row in rows] for name in names}
    return Source.in_memory(arrow.table(columns))


def required_source(value: Any) -> Source:
    """As :func:`source_of`; a ``TypeError`` for other objects."""
    source = source_of(value)
    if source is None:
        raise TypeError(
            f"an object of the class {type(value).__name__} is no table: known are frames of pandas and Polars, "
            "tables, readers and datasets of PyArrow, arrays of NumPy, lists of dicts, and whatever has __arrow_c_stream__"
        )
    return source


def _variable(frame: types.FrameType, name: str) -> Any:
    """The value of a variable; ``None`` if there is none. A comprehension may have a frame of its own."""
    inner: types.FrameType | None = frame
    while inner is not None and name not in inner.f_locals and inner.f_code.co_name in _COMPREHENSIONS:
        inner = inner.f_back
    if inner is not None and name in inner.f_locals:
        return inner.f_locals[name]
    return frame.f_globals.get(name)


def sources_named(
    names: list[tuple[str, str]], is_known: Callable[[str], bool], frame: types.FrameType | None
) -> dict[str, Source] | None:
    """The relations among the variables of a frame which have these names, each as written and as the catalog has it."""
    found = None
    for written, name in names:
        if frame is None or is_known(name):
            continue
        source = source_of(_variable(frame, written))
        if source is not None:
            found = found or {}
            found[name] = source
    return found
