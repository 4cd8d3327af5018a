"""The engines of the differential test: DuckDB in this process, or the shell of Weft.

An engine runs queries on tables and gives, for each, an `Answer` or a `Failure`. Values are None, bool,
int, float, Decimal or str: dates and times are text.
"""

import collections
import datetime
import decimal
import re
import shlex
import subprocess

# Rows, and the name of each column's type if the engine tells.
Answer = collections.namedtuple("Answer", "rows types")
# A refusal; a bug if the engine broke down or admits one.
Failure = collections.namedtuple("Failure", "message is_bug")

# What separates the answers on standard output, and a command that the shell complains about, which
# separates the errors.
MARK = "=== end of query"
COMPLAINT = ".end_of_query"

# Seconds that a query may take.
QUERY_SECONDS = 20


def engine(spec):
    """The engine that an option names."""
    return DuckDb() if spec == "duckdb" else Shell(spec)


class DuckDb:
    """DuckDB with Weft's meaning where the two differ by a setting."""

    SETTINGS = [
        "SET default_null_order = 'nulls_last_on_asc_first_on_desc'",
        "SET integer_division = true",
        "SET TimeZone = 'UTC'",
        "SET threads = 1",
    ]

    def __init__(self):
        # Only needed by who compares with it.
        import duckdb

        self.duckdb = duckdb

    def run(self, tables, queries):
        db = self.duckdb.connect()
        for statement in self.SETTINGS + [line for table in tables for line in table.statements()]:
            db.execute(statement)
        return [self.answer(db, query.sql()) for query in queries]

    def answer(self, db, sql):
        try:
            result = db.execute(sql)
            types = [str(column[1]) for column in result.description]
            rows = [tuple(plain(value) for value in row) for row in result.fetchall()]
        except self.duckdb.Error as error:
            return Failure(str(error), "INTERNAL" in str(error))
        return Answer(rows, types)


def plain(value):
    """A value of Python as the comparison wants it."""
    if isinstance(value, datetime.datetime):
        return value.strftime("%Y-%m-%d %H:%M:%S.%f").rstrip("0").rstrip(".")
    if isinstance(value, (datetime.date, datetime.time)):
        return value.isoformat()
    if value is None or isinstance(value, (bool, int, float, decimal.Decimal)):
        return value
    return str(value)


class Shell:
    """The shell of Weft, one process for all queries, a new one after it broke down."""

    OPTIONS = ["--mode", "tabs", "--no-header", "--bail", "off", "--no-progress"]

    def __init__(self, command):
        self.command = shlex.split(command) + self.OPTIONS

    def run(self, tables, queries):
        answers = []
        while len(answers) < len(queries):
            answers += self.run_some(tables, queries[len(answers) :])
        return answers

    def run_some(self, tables, queries):
        """The answers of as many queries as one process survives, at least one."""
        statements = [line for table in tables for line in table.statements()]
        mark = [f".print {MARK}", COMPLAINT]
        lines = [".changes off"] + [f"{line};" for line in statements] + mark
        for query in queries:
            lines += [f"{query.sql()};"] + mark
        text = "\n".join(lines) + "\n"
        seconds = QUERY_SECONDS + 2 * len(queries)
        pipe = subprocess.PIPE
        process = subprocess.Popen(self.command, stdin=pipe, stdout=pipe, stderr=pipe)
        try:
            streams, end = process.communicate(text.encode(), timeout=seconds), None
        except subprocess.TimeoutExpired:
            process.kill()
            streams, end = process.communicate(), f"no answer after {seconds} s"
        output, errors = (stream.decode(errors="replace") for stream in streams)
        outputs, errors = output.split(MARK + "\n"), COMPLAINED.split(errors)
        if len(outputs) < 2 or errors[0].strip():
            raise RuntimeError(f"the tables cannot be made:\n{text}\n{errors[0]}")
        answers = [self.answer(*both) for both in zip(outputs[1:-1], errors[1:-1])]
        if len(answers) < len(queries):
            message = end or f"ended with code {process.returncode}: {errors[-1][-500:]}"
            answers.append(Failure(message, True))
        return answers

    def answer(self, output, error):
        if error.strip():
            message = error.strip().removeprefix("Error: ")
            return Failure(message, message.startswith("internal error") or "panicked at" in message)
        rows = [tuple(unescape(cell) for cell in line.split("\t")) for line in output.split("\n")[:-1]]
        return Answer(rows, None)


# The complaint, with the place in the script that follows it.
COMPLAINED = re.compile(rf"^Error: .*{re.escape(COMPLAINT)}.*\n(?:  .*\n)*", re.MULTILINE)

ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "\\": "\\"}


def unescape(cell):
    """A cell of a line with tabs: text, or nothing for NULL."""
    if cell == "\\N":
        return None
    if "\\" not in cell:
        return cell
    chars, text = iter(cell), []
    for char in chars:
        text.append(ESCAPES.get(next(chars), "") if char == "\\" else char)
    return "".join(text)
