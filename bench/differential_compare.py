"""Whether two answers are the same: as multisets of rows, or in order, numbers with a tolerance."""

import decimal
import math
import re

# Largest difference of two floating point numbers, relative and absolute, if nothing else is said.
TOLERANCE = 1e-9

# Most rows of a difference that are shown.
ROWS_SHOWN = 5

FLOATING = re.compile(r"^-?\d+(\.\d+)?(e[+-]?\d+)?$", re.IGNORECASE)
TIMESTAMP = re.compile(r"^(-?\d{4,}-\d\d-\d\d)[T ](\d\d:\d\d:\d\d)(\.\d+)?(Z|\+00(:00)?)?$")


def difference(left, right, order, tolerance=TOLERANCE):
    """What differs, in words; nothing if the answers are the same.

    `order` has the positions of the columns by which both answers are sorted, from the first one on;
    `tolerance` is of floating point numbers.
    """
    types = left.types or right.types
    width = len(types) if types else None
    rows = [[read(row, types) for row in answer.rows] for answer in (left, right)]
    for side, name in zip(rows, ("left", "right")):
        if width is not None and any(len(row) != width for row in side):
            return f"{name} has rows of other than {width} columns: {side[:1]}"
    if len(rows[0]) != len(rows[1]):
        return f"{len(rows[0])} rows against {len(rows[1])}\n" + shown(*only(rows, tolerance))
    for position, (one, other) in enumerate(zip(*rows)):
        if not all(same(one[column], other[column], tolerance) for column in order if column < len(one)):
            return f"row {position + 1} in order: {one} against {other}"
    missing, added = only(rows, tolerance)
    return shown(missing, added) if missing or added else None


def shown(missing, added):
    lines = [f"only left:  {row}" for row in missing[:ROWS_SHOWN]]
    return "\n".join(lines + [f"only right: {row}" for row in added[:ROWS_SHOWN]])


def read(row, types):
    """A row whose values compare with each other."""
    if types is None:
        return tuple(row)
    if len(types) != len(row):
        return tuple(row)
    return tuple(value_of(value, of_type) for value, of_type in zip(row, types))


def value_of(value, of_type):
    """A value, maybe as text, as one of a type of DuckDB."""
    if value is None:
        return None
    if of_type == "BOOLEAN":
        return {"true": True, "false": False}.get(value, value)
    if "INT" in of_type and of_type != "INTERVAL" or of_type.startswith("DECIMAL"):
        return number(value)
    if of_type in ("DOUBLE", "FLOAT"):
        try:
            return float(value)
        except ValueError:
            return value
    if of_type.startswith("TIMESTAMP") and (match := TIMESTAMP.match(str(value))):
        fraction = (match[3] or "").rstrip("0").rstrip(".")
        return f"{match[1]} {match[2]}{fraction}"
    return value


def number(value):
    try:
        return decimal.Decimal(value)
    except decimal.InvalidOperation:
        return value


def same(one, other, tolerance):
    if isinstance(one, float) or isinstance(other, float):
        try:
            one, other = float(one), float(other)
        except (TypeError, ValueError):
            return False
        if math.isnan(one) or math.isnan(other):
            return math.isnan(one) and math.isnan(other)
        return math.isclose(one, other, rel_tol=tolerance, abs_tol=tolerance)
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if one != other and isinstance(one, str) and isinstance(other, str):
        # Where no engine tells types a number is text.
        if FLOATING.match(one) and FLOATING.match(other):
            return same(float(one), float(other), tolerance)
    return one == other


def only(rows, tolerance):
    """The rows that only the one and only the other side has."""
    left, right = (sorted(side, key=sort_key) for side in rows)
    missing, added = [], list(right)
    position = 0
    for row in left:
        # Nearly always the next one; others where numbers are nearly the same.
        for candidate in range(len(added)):
            index = (position + candidate) % len(added)
            if all(same(one, other, tolerance) for one, other in zip(row, added[index])):
                del added[index]
                position = index
                break
        else:
            missing.append(row)
    return missing, added


def sort_key(row):
    key = []
    for value in row:
        if value is None:
            key.append((0, 0.0, ""))
        elif isinstance(value, bool):
            key.append((1, float(value), ""))
        elif isinstance(value, (int, float, decimal.Decimal)):
            value = float(value)
            key.append((2, math.inf, "") if math.isnan(value) else (3, float(f"{value:.6g}"), ""))
        else:
            key.append((4, 0.0, str(value)))
    return key
