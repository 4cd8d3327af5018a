"""Checks SQL logic tests against DuckDB, or fills in their results: `slt_duckdb.py [--fill] FILE…`.

Every record runs in an in-memory DuckDB that is set to Weft's semantics where the two differ by a
setting. With --fill, `query` records without results get DuckDB's, with the type of each column; look
at what it writes before you believe it. Records where Weft differs on purpose say `skipif duckdb`, and
`onlyif duckdb` ones are for DuckDB alone.
"""

import datetime
import decimal
import math
import pathlib
import sys
import tempfile

import duckdb

SETTINGS = [
    "SET default_null_order = 'nulls_last_on_asc_first_on_desc'",
    "SET integer_division = true",
    "SET TimeZone = 'UTC'",
    "SET threads = 2",
]


def type_of(name: str) -> str:
    """The letter of a DuckDB type."""
    name = str(name).upper()
    if name.endswith("]") or name.startswith(("STRUCT", "MAP", "UNION", "BLOB", "BIT")):
        return "?"
    if "INT" in name and not name.startswith("INTERVAL"):
        return "I"
    if name.startswith(("DECIMAL", "DOUBLE", "FLOAT", "REAL")):
        return "R"
    if name == "BOOLEAN":
        return "B"
    if name.startswith(("DATE", "TIME", "INTERVAL")):
        return "D"
    return "T" if name in ("VARCHAR", "UUID") else "?"


def float_text(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "inf" if value > 0 else "-inf"
    text = repr(value)
    return text.replace("e+", "e").replace("e0", "e").replace("e-0", "e-")


def time_text(value) -> str:
    text, micros = value.strftime("%H:%M:%S"), value.microsecond
    if micros % 1000:
        return text + f".{micros:06}"
    return text + f".{micros // 1000:03}" if micros else text


def text_of(value) -> str:
    """A value as the test runner writes it."""
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return float_text(value)
    if isinstance(value, decimal.Decimal):
        return f"{value:f}"
    if isinstance(value, datetime.datetime):
        zone = "Z" if value.tzinfo else ""
        return f"{value:%Y-%m-%d} {time_text(value)}{zone}" if value.year > 999 else str(value) + zone
    if isinstance(value, datetime.time):
        return time_text(value)
    if isinstance(value, (bytes, bytearray)):
        return value.hex() or "(empty)"
    if isinstance(value, list):
        return "[" + ", ".join(text_of(v) for v in value) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{k}: {text_of(v)}" for k, v in value.items()) + "}"
    text = str(value)
    return text if text else "(empty)"


class Script:
    """The records of a file, as lists of lines between blank ones."""

    def __init__(self, path: pathlib.Path):
        self.path = path
        self.blocks: list[list[str]] = [[]]
        for line in path.read_text().split("\n"):
            if line.strip():
                self.blocks[-1].append(line)
            elif self.blocks[-1]:
                self.blocks.append([])
        if not self.blocks[-1]:
            self.blocks.pop()

    def write(self) -> None:
        self.path.write_text("\n\n".join("\n".join(block) for block in self.blocks) + "\n")


def run(path: pathlib.Path, fill: bool) -> int:
    """Runs a file; the number of records that went wrong."""
    script, wrong = Script(path), 0
    db = duckdb.connect()
    for setting in SETTINGS:
        db.execute(setting)
    with tempfile.TemporaryDirectory() as directory:
        for block in script.blocks:
            head = next((i for i, line in enumerate(block) if line.split()[0] in ("statement", "query")), None)
            if head is None:
                continue
            conditions = [line.split() for line in block[:head]]
            if ["skipif", "duckdb"] in conditions or ["onlyif", "weft"] in conditions:
                continue
            problem = run_record(db, block, head, directory, fill)
            if problem:
                wrong += 1
                print(f"{path}: {problem}\n    " + "\n    ".join(block[head:]))
    if fill:
        script.write()
    return wrong


def run_record(db, block: list[str], head: int, directory: str, fill: bool) -> str | None:
    """Runs one record; what is wrong with it."""
    words = block[head].split()
    has_results = "----" in block
    cut = block.index("----") if has_results else len(block)
    sql = "\n".join(block[head + 1 : cut]).replace("$__TEST_DIR__", directory)
    fails = words[1:2] == ["error"]
    try:
        result = db.execute(sql)
        rows = result.fetchall() if result.description else []
    except Exception as error:  # DuckDB's errors have no common base besides this one.
        return None if fails else f"failed: {error}"
    if fails:
        return "did not fail"
    if words[0] == "statement":
        return None
    types = "".join(type_of(column[1]) for column in result.description)
    sorting = [word for word in words[1:] if word in ("rowsort", "valuesort", "nosort")]
    cells = [[text_of(value) for value in row] for row in rows]
    if "rowsort" in sorting:
        cells.sort()
    lines = [" ".join(row) for row in cells]
    if not has_results:
        if not fill:
            return "has no results"
        block[head] = " ".join(["query", types] + sorting)
        block += ["----"] + lines
        return None
    normal = [" ".join(line.split()) for line in lines]
    expected = [" ".join(line.split()) for line in block[cut + 1 :]]
    if words[1] != types:
        return f"types are {types}"
    return None if normal == expected else "DuckDB returns:\n    " + "\n    ".join(normal)


def main() -> None:
    fill = "--fill" in sys.argv
    paths = [pathlib.Path(arg) for arg in sys.argv[1:] if arg != "--fill"]
    wrong = sum(run(path, fill) for path in paths)
    print(f"{len(paths)} files, {wrong} records differ")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
