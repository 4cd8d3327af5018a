"""Queries that clients without a package here are known to send when they connect and look at the catalog."""

import pathlib
import re

import pytest

FILES = sorted((pathlib.Path(__file__).parent / "queries").glob("*.sql"))
QUERIES = [
    pytest.param(query, id=f"{file.stem}-{number}")
    for file in FILES
    for number, query in enumerate(re.split(r";\n\n|;\n\Z", file.read_text()), 1)
    if query.strip()
]


@pytest.mark.parametrize("query", QUERIES)
def test_the_query_runs(connection, query):
    cursor = connection.execute(query)
    if cursor.description is not None:
        cursor.fetchall()
