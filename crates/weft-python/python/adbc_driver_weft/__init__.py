"""Weft as a driver of ADBC, for programs that find drivers by the names of such packages.

:mod:`adbc_driver_weft.dbapi` has what most programs want: connections as DB-API 2.0 has them, with results as Arrow data.
It needs the package ``adbc-driver-manager`` (``pip install 'weft[adbc]'``).
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import adbc_driver_manager

__all__ = ["DatabaseOptions", "connect", "driver_path", "entrypoint"]

#: The function of the driver that a manager of drivers calls first.
entrypoint = "AdbcDriverWeftInit"


class DatabaseOptions(enum.Enum):
    """Options of a database beside its URI; each setting of Weft is one as well, by its name."""

    #: Memory that the database may use, such as ``4GiB``.
    MEMORY_LIMIT = "memory_limit"
    #: Threads of the database.
    THREADS = "threads"
    #: ``true`` opens a database that exists, and never changes it.
    READ_ONLY = "read_only"


def driver_path() -> str:
    """The file of the driver: the extension module of Weft itself, so that nothing is loaded twice."""
    from weft import _weft

    path = _weft.__file__
    assert path is not None
    return path


def connect(
    uri: str | None = None, db_kwargs: Mapping[str, str] | None = None
) -> adbc_driver_manager.AdbcDatabase:
    """Opens a database, at the level of ADBC itself.

    ``uri`` is the path of a directory, or ``weft:///path``; without one it is a temporary database.
    """
    import adbc_driver_manager

    options = dict(db_kwargs or {})
    if uri is not None:
        options["uri"] = uri
    return adbc_driver_manager.AdbcDatabase(
        driver=driver_path(), entrypoint=entrypoint, **options
    )
