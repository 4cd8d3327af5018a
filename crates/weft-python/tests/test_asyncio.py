"""Statements for coroutines."""

import asyncio
import threading

import pytest
import weft
from conftest import LONG
from weft import Connection


def test_await(con: Connection) -> None:
    async def main() -> None:
        await con.execute_async("CREATE TABLE t (a INTEGER)")
        inserted = await con.execute_async("INSERT INTO t VALUES (?), (2)", [1])
        assert inserted.rowcount == 2
        result = await con.execute_async("SELECT a FROM t ORDER BY a")
        assert result.description is not None
        assert result.description[0][0] == "a"
        assert await result.fetchone() == (1,)
        assert await result.fetchmany(5) == [(2,)]
        assert (await result.arrow()).num_rows == 2
        assert (await result.pl()).height == 2
        assert (await result.df()).shape == (2, 1)
        with pytest.raises(weft.ProgrammingError):
            await con.execute_async("SELECT nothing")

    asyncio.run(main())


def test_rows_that_are_not_kept(con: Connection) -> None:
    async def main() -> None:
        sql = "SELECT value FROM generate_series(1, 100000) AS g(value) ORDER BY value"
        result = await con.execute_async(sql, keep=False)
        assert await result.fetchone() == (1,)
        assert await result.fetchmany(2) == [(2,), (3,)]
        assert len(await result.fetchall()) == 100_000 - 3
        result = await con.execute_async(sql, keep=False)
        assert (await result.arrow()).num_rows == 100_000

    asyncio.run(main())


def test_batches(con: Connection) -> None:
    async def main() -> int:
        result = con.execute_async("SELECT value FROM generate_series(1, 100000) AS g(value)")
        return sum([len(batch) async for batch in result])

    assert asyncio.run(main()) == 100_000


def test_many_at_once(con: Connection) -> None:
    con.execute("CREATE TABLE t AS SELECT value AS a FROM generate_series(1, 1000) AS g(value)")
    threads = threading.active_count()

    async def query(number: int) -> int:
        result = await con.execute_async("SELECT sum(a) + ? FROM t", [number])
        row = await result.fetchone()
        assert row is not None
        return int(row[0])

    async def main() -> list[int]:
        return await asyncio.gather(*(query(number) for number in range(100)))

    assert asyncio.run(main()) == [500500 + number for number in range(100)]
    assert threading.active_count() == threads


def test_cancelling(con: Connection) -> None:
    async def main() -> None:
        result = con.execute_async(LONG)
        task = asyncio.ensure_future(result.fetchall())
        await asyncio.sleep(0.2)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        with pytest.raises(weft.QueryCancelledError):
            await result.fetchall()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await con.execute_async(LONG).fetchall()
        again = await con.execute_async("SELECT 1")
        assert await again.fetchall() == [(1,)]

    asyncio.run(main())


def test_the_loop_goes_on_meanwhile(con: Connection) -> None:
    async def main() -> int:
        ticks = 0
        result = con.execute_async(LONG)
        task = asyncio.ensure_future(result.fetchall())
        for _ in range(20):
            await asyncio.sleep(0.005)
            ticks += 1
        result.cancel()
        with pytest.raises(weft.QueryCancelledError):
            await task
        return ticks

    assert asyncio.run(main()) == 20
