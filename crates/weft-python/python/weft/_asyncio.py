"""Statements for coroutines. They run on the database's own threads; no thread waits for any of them."""

from __future__ import annotations

import asyncio
import itertools
import weakref
from collections.abc import AsyncIterator, Callable, Generator
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from . import _weft
from ._errors import InterfaceError
from ._sources import pyarrow

if TYPE_CHECKING:
    import pandas
    import polars
    from pyarrow import Table

    from ._connection import Connection
    from ._result import Row

T = TypeVar("T")


class _Pending:
    """Says that there is no answer yet."""


_PENDING = _Pending()


class _Loop(Generic[T]):
    """The waits of one event loop. Statements wake it through a pipe."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._wakeups = _weft.Wakeups()
        self._waits: dict[int, Callable[[], None]] = {}
        self._keys = itertools.count()
        loop.add_reader(self._wakeups.fileno(), self._look)

    def _look(self) -> None:
        for key in self._wakeups.take():
            look = self._waits.get(key)
            if look is not None:
                look()

    async def wait(self, poll: Callable[[_weft.Wakeups, int], Any]) -> Any:
        """The answer of ``poll``, which is called until it has one."""
        key = next(self._keys)
        answer = poll(self._wakeups, key)
        if answer is not _PENDING:
            return answer
        future = asyncio.get_running_loop().create_future()

        def look() -> None:
            if future.done():
                return
            try:
                answer = poll(self._wakeups, key)
            except BaseException as error:  # noqa: BLE001 - handed to whoever awaits it
                future.set_exception(error)
                return
            if answer is not _PENDING:
                future.set_result(answer)

        self._waits[key] = look
        try:
            return await future
        finally:
            del self._waits[key]


_loops: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Loop[Any]] = (
    weakref.WeakKeyDictionary()
)


def _running_loop() -> _Loop[Any]:
    loop = asyncio.get_running_loop()
    found = _loops.get(loop)
    if found is None:
        found = _loops[loop] = _Loop(loop)
    return found


class AsyncResult:
    """A statement that was started for a coroutine.

    Awaiting it waits until a query is planned, or a command has ended, and returns it. ``async for`` gives the
    batches of its rows. Cancelling the task that waits cancels the statement.

    >>> import asyncio, weft
    >>> async def main():
    ...     with weft.connect() as con:
    ...         result = await con.execute_async("SELECT 6 * 7")
    ...         return await result.fetchall()
    >>> asyncio.run(main())
    [(42,)]
    """

    def __init__(self, connection: Connection, statement: _weft.Statement) -> None:
        self._connection = connection
        self._statement = statement

    def __await__(self) -> Generator[Any, None, AsyncResult]:
        return self._begun().__await__()

    async def _begun(self) -> AsyncResult:
        await self._wait(
            lambda wakeups, key: self._statement.poll_planned(wakeups, key) or _PENDING
        )
        if self._statement.command() is not None:
            await self._ended()
        return self

    async def _ended(self) -> None:
        await self._wait(lambda wakeups, key: self._statement.poll_end(wakeups, key) or _PENDING)

    async def _wait(self, poll: Callable[[_weft.Wakeups, int], Any]) -> Any:
        self._connection._check()
        try:
            return await _running_loop().wait(poll)
        except asyncio.CancelledError:
            self._statement.cancel()
            raise

    async def _started(self) -> None:
        await self._begun()
        if self._statement.command() is not None:
            raise InterfaceError("the statement returns no rows")

    async def __aiter__(self) -> AsyncIterator[_weft.Batch]:
        await self._started()
        number = 0
        while True:

            def poll(wakeups: _weft.Wakeups, key: int, number: int = number) -> Any:
                is_known, batch = self._statement.poll_batch(number, wakeups, key)
                return batch if is_known else _PENDING

            batch = await self._wait(poll)
            if batch is None:
                return
            yield batch
            number += 1

    @property
    def description(self) -> list[tuple[Any, ...]] | None:
        """As :attr:`Cursor.description`, once the statement was awaited."""
        if self._statement.command() is not None:
            return None
        return [(column[0], column[1], None, None, *column[2:]) for column in self._statement.columns()]

    @property
    def rowcount(self) -> int:
        """As :attr:`Cursor.rowcount`, once the statement was awaited."""
        command = self._statement.command()
        count = self._statement.row_count() if command is None else command[1]
        return -1 if count is None else count

    async def _fetch(self, count: float) -> list[Row]:
        await self._started()
        rows: list[Row] = []
        while len(rows) < count:
            await self._wait(
                lambda wakeups, key: self._statement.poll_fetch(wakeups, key) or _PENDING
            )
            left = min(count - len(rows), 1 << 30)
            part = self._statement.fetch_ready(int(left))
            if not part:
                break
            rows += part
        return rows

    async def fetchall(self) -> list[Row]:
        """All rows that were not fetched before."""
        return await self._fetch(float("inf"))

    async def fetchmany(self, size: int = 1) -> list[Row]:
        """The next rows that were not fetched before, ``size`` at most."""
        return await self._fetch(size)

    async def fetchone(self) -> Row | None:
        """The next row that was not fetched before; ``None`` behind the last one."""
        rows = await self._fetch(1)
        return rows[0] if rows else None

    async def arrow(self) -> Table:
        """The rows as a table of PyArrow."""
        arrow = pyarrow()
        await self._started()
        if self._statement.is_kept():
            await self._ended()
            return arrow.table(self._statement)
        batches = [arrow.record_batch(batch) async for batch in self]
        return arrow.Table.from_batches(batches, arrow.schema(self._statement))

    async def pl(self) -> polars.DataFrame:
        """The rows as a frame of Polars."""
        import polars

        return polars.DataFrame(await self.arrow())

    async def df(self, *, decimals: str = "float64") -> pandas.DataFrame:
        """The rows as a frame of pandas: see :meth:`Rows.df`."""
        from ._result import frame_of

        return frame_of(await self.arrow(), decimals)

    def cancel(self) -> None:
        """Cancels the statement, if it still runs."""
        self._statement.cancel()
