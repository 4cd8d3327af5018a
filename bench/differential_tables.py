"""Random tables: columns of all types, with nulls, skew, duplicates, extremes and empty tables."""

import datetime
import decimal

# Kinds of values, and the types that columns of the kind have. `big` is for integers near the ends of
# their type, which queries compare and count but do not add; `wild` the same for floating point numbers.
TYPES = {
    "int": ["SMALLINT", "INTEGER", "INTEGER", "BIGINT"],
    "big": ["INTEGER", "BIGINT"],
    "dec": ["DECIMAL(5,1)", "DECIMAL(9,2)", "DECIMAL(15,2)", "DECIMAL(18,4)"],
    "dbl": ["DOUBLE"],
    "wild": ["DOUBLE"],
    "str": ["VARCHAR"],
    "date": ["DATE"],
    "ts": ["TIMESTAMP"],
    "bool": ["BOOLEAN"],
}

EXTREMES = {"INTEGER": 2**31, "BIGINT": 2**63}

WILD = ["1e300", "-1e300", "1e-300", "0.1", "-0.1", "3.0", "'NaN'::DOUBLE", "'Infinity'::DOUBLE", "'-Infinity'::DOUBLE"]

WORDS = [
    "", "a", "b", "ab", "abc", "B", "Abc", "a b", " a", "a%b", "a_b", "é", "ß", "日本", "zz", "O''Brien",
    "10", "long string that does not fit into sixteen bytes", "long string that does not fit, either",
]


class Column:
    """A column of a table."""

    def __init__(self, name, kind, sql_type):
        self.name, self.kind, self.sql_type = name, kind, sql_type


class Table:
    """A table with rows of SQL literals. Its first column, `id`, is a key."""

    # Rows of one INSERT.
    ROWS_AT_ONCE = 500

    def __init__(self, name, columns, rows):
        self.name, self.columns, self.rows = name, columns, rows

    def with_rows(self, rows):
        return Table(self.name, self.columns, rows)

    def statements(self):
        columns = ", ".join(f"{column.name} {column.sql_type}" for column in self.columns)
        yield f"CREATE TABLE {self.name} ({columns})"
        for start in range(0, len(self.rows), self.ROWS_AT_ONCE):
            rows = ", ".join(f"({', '.join(row)})" for row in self.rows[start : start + self.ROWS_AT_ONCE])
            yield f"INSERT INTO {self.name} VALUES {rows}"


def random_table(rng, name, rows_about, is_large=False):
    """A table with its rows: more than a vector has if it is to be large."""
    columns = [Column("id", "int", "INTEGER")]
    kinds = ["int", "str"] + rng.choices(list(TYPES), k=rng.randint(2, 5))
    for index, kind in enumerate(kinds):
        columns.append(Column(f"{kind[0]}{index}", kind, rng.choice(TYPES[kind])))
    count = rng.choice([0, 1, rows_about // 3, rows_about, rows_about, rows_about * 2])
    if is_large:
        count = rng.choice([2047, 2048, 2049, 3000, 5000])
    makers = [column_maker(rng, column) for column in columns[1:]]
    rows = [[str(number)] + [make() for make in makers] for number in range(count)]
    return Table(name, columns, rows)


def column_maker(rng, column):
    """What makes the values of a column: few or many different ones, and some nulls."""
    nulls = rng.choice([0, 0, 0.05, 0.3, 0.95])
    few = [literal(rng, column.kind, column.sql_type) for _ in range(rng.randint(1, 6))]
    shape = rng.choice(["few", "many", "skewed"])

    def make():
        if rng.random() < nulls:
            return "NULL"
        if shape == "few" or (shape == "skewed" and rng.random() < 0.8):
            return few[0] if shape == "skewed" else rng.choice(few)
        return literal(rng, column.kind, column.sql_type)

    return make


def literal(rng, kind, sql_type=""):
    """A random value as SQL."""
    if kind == "int":
        return str(rng.choice([0, 1, 2, 3, -1, rng.randint(-20, 20), rng.randint(-99, 99)]))
    if kind == "big":
        end = EXTREMES[sql_type or "BIGINT"]
        return str(rng.choice([end - 1, 1 - end, end - 2, rng.randrange(1 - end, end), 0, 1, -1]))
    if kind == "dec":
        digits = {"DECIMAL(5,1)": 1, "DECIMAL(18,4)": 4}.get(sql_type, 2)
        value = decimal.Decimal(rng.choice([rng.randint(-50, 50), rng.randint(-9999, 9999)]))
        # In parentheses, so that a cast after it applies to the sign, too.
        text = str(value.scaleb(-rng.randint(0, digits)))
        return f"({text})" if value < 0 else text
    if kind == "dbl":
        # Multiples of a quarter: their sums are exact in any order.
        return f"CAST({rng.choice([rng.randint(-8, 8), rng.randint(-4000, 4000)]) / 4!r} AS DOUBLE)"
    if kind == "wild":
        return f"CAST({rng.choice(WILD)} AS DOUBLE)"
    if kind == "str":
        return f"'{rng.choice(WORDS)}'"
    if kind == "bool":
        return rng.choice(["true", "false"])
    start = datetime.datetime(2020, 1, 28)
    far = [datetime.datetime(1969, 12, 31, 23, 59, 59), datetime.datetime(2099, 12, 31), datetime.datetime(1900, 3, 1)]
    day = rng.choice(far + [start + datetime.timedelta(days=rng.randint(0, 40)) for _ in range(8)])
    if kind == "date":
        return f"DATE '{day:%Y-%m-%d}'"
    day += datetime.timedelta(seconds=rng.choice([0, 0, 1, 3600, 86399]), microseconds=rng.choice([0, 0, 500000, 1]))
    return f"TIMESTAMP '{day:%Y-%m-%d %H:%M:%S.%f}'"
