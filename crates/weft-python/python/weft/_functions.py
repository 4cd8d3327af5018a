"""Functions in Python, which SQL can call."""

from __future__ import annotations

import datetime
import inspect
import typing
from collections.abc import Callable, Sequence
from typing import Any

from . import _weft
from ._errors import InterfaceError
from ._sources import pyarrow

_CLASSES: dict[Any, str] = {
    bool: "BOOLEAN",
    int: "BIGINT",
    float: "DOUBLE",
    str: "VARCHAR",
    bytes: "BLOB",
    datetime.datetime: "TIMESTAMP",
    datetime.date: "DATE",
    datetime.time: "TIME",
    datetime.timedelta: "INTERVAL",
}

_ARROW = {
    "bool": "BOOLEAN", "int8": "TINYINT", "int16": "SMALLINT", "int32": "INTEGER", "int64": "BIGINT",
    "uint8": "TINYINT UNSIGNED", "uint16": "SMALLINT UNSIGNED", "uint32": "INTEGER UNSIGNED",
    "uint64": "BIGINT UNSIGNED", "float": "REAL", "double": "DOUBLE", "string": "VARCHAR",
    "large_string": "VARCHAR", "string_view": "VARCHAR", "binary": "BLOB", "large_binary": "BLOB",
    "binary_view": "BLOB", "date32[day]": "DATE", "time64[us]": "TIME", "timestamp[s]": "TIMESTAMP(0)",
    "timestamp[ms]": "TIMESTAMP(3)", "timestamp[us]": "TIMESTAMP", "timestamp[ns]": "TIMESTAMP(9)",
    "timestamp[us, tz=UTC]": "TIMESTAMP WITH TIME ZONE", "month_day_nano_interval": "INTERVAL",
}  # fmt: skip


def type_name(given: Any) -> str:
    """What SQL calls a type: a name, a type of PyArrow, or a class."""
    if isinstance(given, str):
        return given
    if given in _CLASSES:
        return _CLASSES[given]
    if typing.get_origin(given) is list:
        (item,) = typing.get_args(given)
        return f"{type_name(item)}[]"
    text = str(given)
    if text in _ARROW:
        return _ARROW[text]
    if text.startswith("decimal128("):
        return f"DECIMAL{text.removeprefix('decimal128')}"
    if text.startswith(("list<", "large_list<")):
        return f"{type_name(given.value_type)}[]"
    raise InterfaceError(f"{given!r} is no type of SQL: give its name, such as 'BIGINT'")


def _without_none(annotation: Any) -> Any:
    kinds = [kind for kind in typing.get_args(annotation) if kind is not type(None)]
    return kinds[0] if type(None) in typing.get_args(annotation) and len(kinds) == 1 else annotation


def _annotated(function: Callable[..., Any]) -> tuple[list[Any], Any]:
    try:
        hints = typing.get_type_hints(function)
        names = list(inspect.signature(function).parameters)
        return [_without_none(hints[name]) for name in names], _without_none(hints["return"])
    except (KeyError, TypeError, ValueError, NameError) as error:
        raise InterfaceError(
            "the function has no annotations that tell its types: give parameters and returns"
        ) from error


def _over_arrays(function: Callable[..., Any]) -> Callable[[list[Any]], Any]:
    """The function over capsules of arrays."""
    arrow = pyarrow()

    class Capsules:
        def __init__(self, capsules: tuple[object, object]) -> None:
            self.capsules = capsules

        def __arrow_c_array__(self, requested_schema: object | None = None) -> tuple[object, object]:
            return self.capsules

    def called(arguments: list[Any]) -> Any:
        returned = function(*(arrow.array(Capsules(capsules)) for capsules in arguments))
        if isinstance(returned, arrow.ChunkedArray):
            returned = returned.combine_chunks()
        if not hasattr(returned, "__arrow_c_array__"):
            returned = arrow.array(returned)
        return returned

    return called


def _of_group(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function with its value as an array of one."""
    arrow = pyarrow()

    def called(*arguments: Any) -> Any:
        value = function(*arguments)
        return arrow.array([value.as_py() if isinstance(value, arrow.Scalar) else value])

    return called


def add_function(
    session: _weft.Session,
    name: str,
    function: Callable[..., Any],
    parameters: Sequence[Any] | None,
    returns: Any,
    style: str,
    null_handling: str,
    side_effects: bool,
    is_aggregate: bool = False,
) -> None:
    """Adds a function to a session."""
    if style not in ("native", "arrow"):
        raise InterfaceError("the type of a function is native or arrow")
    if null_handling not in ("default", "special"):
        raise InterfaceError("null_handling is default or special")
    if parameters is None or returns is None:
        annotated, returned = _annotated(function)
        parameters = annotated if parameters is None else parameters
        returns = returned if returns is None else returns
    code = function
    if style == "arrow":
        code = _over_arrays(_of_group(function) if is_aggregate else function)
    if is_aggregate:
        style = "arrow aggregate" if style == "arrow" else "aggregate"
    how = (style, null_handling == "default", side_effects)
    session.add_function(
        name.lower(), code, [type_name(kind) for kind in parameters], type_name(returns), how
    )
