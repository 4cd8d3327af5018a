"""What the tests share."""

import signal
from collections.abc import Iterator

import pytest
import weft

# A process that a shell has started in the background ignores interrupts.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def con() -> Iterator[weft.Connection]:
    """A connection with a temporary database."""
    with weft.connect(memory_limit="256MiB", threads=2) as connection:
        yield connection


#: A query that takes much longer than any test.
LONG = """
    SELECT count(*) FROM
        (SELECT value AS a FROM generate_series(1, 1000000) AS g(value)) AS x
        JOIN (SELECT value AS b FROM generate_series(1, 1000000) AS g(value)) AS y ON a * 7919 % 1000003 < b * 104729 % 999983
"""
