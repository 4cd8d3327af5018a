"""asyncpg: the binary format, prepared statements, types by the catalog, COPY."""

import asyncio
import datetime
import io

import asyncpg


def run(server, test):
    async def inside():
        connection = await asyncpg.connect(host="127.0.0.1", port=server.port, user="me", database="weft")
        try:
            await test(connection)
        finally:
            await connection.close()

    asyncio.run(inside())


def test_prepared_statements_take_and_give_values(server):
    async def test(connection):
        assert await connection.fetchval("SELECT $1::int + 1", 41) == 42
        row = await connection.fetchrow("SELECT i, s FROM t WHERE i = $1", 1)
        assert (row["i"], row["s"]) == (1, "one")
        at = datetime.datetime(2020, 1, 2, 3, 4, 5)
        assert await connection.fetchval("SELECT $1::timestamp", at) == at

    run(server, test)


def test_cursors_give_rows_in_parts(server):
    async def test(connection):
        found = []
        async with connection.transaction():
            async for row in connection.cursor("SELECT i FROM generate_series(1, 100) AS v(i) ORDER BY i", prefetch=7):
                found.append(row["i"])
        assert found == list(range(1, 101))

    run(server, test)


def test_copy_goes_both_ways(server):
    async def test(connection):
        await connection.execute("CREATE TABLE copied (i INTEGER, s VARCHAR)")
        rows = [(1, "a"), (2, None)]
        assert await connection.copy_records_to_table("copied", records=rows) == "COPY 2"
        out = io.BytesIO()
        assert await connection.copy_from_query("SELECT * FROM copied ORDER BY i", output=out, format="csv") == "COPY 2"
        assert out.getvalue() == b"1,a\n2,\n"
        await connection.execute("DROP TABLE copied")

    run(server, test)


def test_the_connection_is_reset(server):
    async def test(connection):
        await connection.reset()
        assert await connection.fetchval("SELECT version()") is not None

    run(server, test)
