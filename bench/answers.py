"""Computes reference answers with DuckDB: `answers.py QUERIES SCHEMA DATA OUT`.

QUERIES holds q01.sql, q02.sql, …; SCHEMA is a script of CREATE TABLE statements; DATA has one TABLE.csv
(with a header line, NULL as an unquoted empty field) or TABLE.parquet per table. Written to OUT:

- qNN.csv: the answer with a header line, NULL as NULL. Where LIMIT cuts through rows that ORDER BY
  does not tell apart, all of them are there: an answer may have any of them.
- order_keys.csv: the output columns (from 0) that ORDER BY fixes the order of rows by.
"""

import csv
import itertools
import pathlib
import re
import sys

import duckdb


def top_level(sql: str, pattern: str) -> list[re.Match]:
    """Matches of `pattern` outside of parentheses and strings."""
    depth, quoted, outside = 0, False, []
    for index, char in enumerate(sql):
        if char == "'":
            quoted = not quoted
        elif not quoted and char == "(":
            depth += 1
        elif not quoted and char == ")":
            depth -= 1
        elif depth == 0 and not quoted:
            outside.append(index)
    inside = set(outside)
    return [m for m in re.finditer(pattern, sql, re.IGNORECASE) if m.start() in inside]


def without_limit(sql: str) -> tuple[str, int | None]:
    """The query without its last LIMIT, and that limit."""
    found = top_level(sql, r"\blimit\s+(\d+)\s*$")
    return (sql[: found[-1].start()], int(found[-1].group(1))) if found else (sql, None)


def order_items(sql: str, columns: list[str]) -> list[int | str]:
    """The items of ORDER BY: output columns by number, other expressions as they are."""
    found = top_level(sql, r"\border\s+by\b")
    if not found:
        return []
    text = sql[found[-1].end() :]
    cuts = [0] + [m.end() for m in top_level(text, ",")] + [len(text) + 1]
    names = [name.lower() for name in columns]
    keys: list[int | str] = []
    for start, end in zip(cuts, cuts[1:]):
        item = re.sub(r"\s+nulls\s+(first|last)\s*$", "", text[start : end - 1].strip(), flags=re.I)
        item = re.sub(r"\s+(asc|desc)\s*$", "", item, flags=re.I).strip().lower()
        name = item.split(".")[-1].strip('"')
        if item.isdigit():
            keys.append(int(item) - 1)
        elif names.count(name) == 1:
            keys.append(names.index(name))
        else:
            keys.append(item)
    return keys


def answer(db: duckdb.DuckDBPyConnection, sql: str) -> tuple[list[str], list[tuple], list[int]]:
    """Columns, rows with ties past the limit, and order keys of a query."""
    sql = re.sub(r"--[^\n]*", "", sql).strip().rstrip(";").rstrip()
    unlimited, limit = without_limit(sql)
    columns = [column[0] for column in db.execute(unlimited).description]
    items = order_items(unlimited, columns)
    keys = list(itertools.takewhile(lambda item: isinstance(item, int), items))
    texts = [f'CAST("{name}" AS VARCHAR)' for name in unique(columns)]
    # What tells rows apart besides output columns, as far as it is computed from those.
    further = [f"CAST({item} AS VARCHAR)" for item in items if isinstance(item, str)]
    names = ", ".join(f'"{name}"' for name in unique(columns))
    source = f"FROM ({unlimited}) AS answer({names})"
    try:
        rows = db.execute(f"SELECT {', '.join(texts + further)} {source}").fetchall()
        tied_by = [item for item in items if isinstance(item, int)]
        tied_by += range(len(columns), len(columns) + len(further))
    except duckdb.BinderException:
        rows = db.execute(f"SELECT {', '.join(texts)} {source}").fetchall()
        tied_by = keys
    if limit is not None and len(rows) > limit:
        last = [rows[limit - 1][key] for key in tied_by]
        end = limit
        while end < len(rows) and [rows[end][key] for key in tied_by] == last:
            end += 1
        rows = rows[:end]
    return columns, [row[: len(columns)] for row in rows], keys


def unique(columns: list[str]) -> list[str]:
    """The names for double quotes, with a number appended to those that come again."""
    names = [f"{name}_{i}" if columns.index(name) < i else name for i, name in enumerate(columns)]
    return [name.replace('"', '""') for name in names]


def text_of(value: str | None) -> str:
    """A value as it is written: NaN has no sign."""
    if value is None:
        return "NULL"
    return "NaN" if value in ("nan", "-nan") else value


def load(db: duckdb.DuckDBPyConnection, schema: pathlib.Path, data: pathlib.Path) -> None:
    """Creates and fills the tables."""
    db.execute(schema.read_text())
    for (table,) in db.execute("SHOW TABLES").fetchall():
        if (data / f"{table}.csv").exists():
            db.execute(f"COPY {table} FROM '{data}/{table}.csv' (HEADER, NULLSTR '')")
        else:
            db.execute(f"COPY {table} FROM '{data}/{table}.parquet'")


def main() -> None:
    queries, schema, data, out = (pathlib.Path(arg) for arg in sys.argv[1:5])
    db = duckdb.connect()
    # As in Weft and PostgreSQL: NULL is larger than everything.
    db.execute("SET default_null_order = 'nulls_last_on_asc_first_on_desc'")
    load(db, schema, data)
    out.mkdir(parents=True, exist_ok=True)
    with open(out / "order_keys.csv", "w", newline="") as keys_file:
        key_writer = csv.writer(keys_file, lineterminator="\n")
        key_writer.writerow(["query", "keys"])
        for path in sorted(queries.glob("q*.sql")):
            columns, rows, keys = answer(db, path.read_text())
            key_writer.writerow([path.stem, " ".join(map(str, keys))])
            with open(out / f"{path.stem}.csv", "w", newline="") as file:
                writer = csv.writer(file, lineterminator="\n")
                writer.writerow(columns)
                writer.writerows([[text_of(value) for value in row] for row in rows])
            print(path.stem, len(rows), "rows, order keys", keys)


if __name__ == "__main__":
    main()
