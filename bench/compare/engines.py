"""The engines that Weft is compared with, each on a file of its own: load, open, run a query.

An engine lives in a process of its own and uses at most as many processors as it is told.
"""

import os
import pathlib
import resource

TABLES = ["region", "nation", "supplier", "customer", "part", "partsupp", "orders", "lineitem"]


class DuckDb:
    name = "DuckDB"

    def __init__(self, data: pathlib.Path, scale: str, threads: int, memory_limit: str):
        self.path = data / f"compare-sf{scale}.duckdb"
        self.config = {"threads": str(threads), "memory_limit": memory_limit}

    def load(self, parquet: pathlib.Path, schema: str) -> None:
        self.forget()
        self.open()
        self.db.execute(schema)
        for table in TABLES:
            self.db.execute(f"COPY {table} FROM '{parquet}/{table}.parquet'")
        self.db.execute("CHECKPOINT")
        self.close()

    def open(self) -> None:
        import duckdb

        self.version = duckdb.__version__
        self.db = duckdb.connect(str(self.path), config=self.config)
        self.db.execute("SET enable_progress_bar = false")

    def rows(self, sql: str) -> list:
        return self.db.execute(sql).fetchall()

    def close(self) -> None:
        self.db.close()

    def files(self) -> list[pathlib.Path]:
        return [self.path]

    def forget(self) -> None:
        self.path.unlink(missing_ok=True)

    def peak_rss(self) -> int:
        """Largest resident memory so far, bytes."""
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


class DataFusion(DuckDb):
    """Its native files are the Parquet files themselves."""

    name = "DataFusion"

    def __init__(self, data: pathlib.Path, scale: str, threads: int, memory_limit: str):
        self.parquet = data / f"tpch-sf{scale}"
        self.threads, self.memory_limit = threads, bytes_of(memory_limit)

    def load(self, parquet: pathlib.Path, schema: str) -> None:
        pass

    def open(self) -> None:
        import datafusion

        self.version = datafusion.__version__
        memory = datafusion.RuntimeEnvBuilder().with_disk_manager_os().with_fair_spill_pool(self.memory_limit)
        config = datafusion.SessionConfig().with_target_partitions(self.threads)
        self.db = datafusion.SessionContext(config, memory)
        for table in TABLES:
            self.db.register_parquet(table, str(self.parquet / f"{table}.parquet"))

    def rows(self, sql: str) -> list:
        batches = self.db.sql(sql).collect()
        columns = [zip(*(column.to_pylist() for column in batch.columns)) for batch in batches]
        return [row for batch in columns for row in batch]

    def close(self) -> None:
        del self.db

    def files(self) -> list[pathlib.Path]:
        return [self.parquet / f"{table}.parquet" for table in TABLES]

    def forget(self) -> None:
        pass


class Hyper(DuckDb):
    """A server process; it has no setting for threads or memory, so it has the processors that we have."""

    name = "Hyper"

    def __init__(self, data: pathlib.Path, scale: str, threads: int, memory_limit: str):
        self.path = data / f"compare-sf{scale}.hyper"

    def load(self, parquet: pathlib.Path, schema: str) -> None:
        self.forget()
        self.open()
        # Types of its own for the columns: those that the files give it.
        for table in TABLES:
            source = f"external('{parquet}/{table}.parquet')"
            self.db.execute_command(f"CREATE TABLE {table} AS (SELECT * FROM {source})")
        self.close()

    def open(self) -> None:
        import tableauhyperapi as hyper

        self.version = hyper.__version__
        telemetry = hyper.Telemetry.DO_NOT_SEND_USAGE_DATA_TO_TABLEAU
        self.server = hyper.HyperProcess(telemetry, parameters={"log_config": ""})
        self.db = hyper.Connection(self.server.endpoint, str(self.path), hyper.CreateMode.CREATE_IF_NOT_EXISTS)

    def rows(self, sql: str) -> list:
        return [tuple(map(plain, row)) for row in self.db.execute_list_query(sql)]

    def close(self) -> None:
        self.db.close()
        self.server.close()

    def peak_rss(self) -> int:
        return resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024


ENGINES = {engine.name.lower(): engine for engine in (DuckDb, DataFusion, Hyper)}


def plain(value):
    """A value of Hyper's as Python has it."""
    return value.to_date() if hasattr(value, "to_date") else value


def bytes_of(size: str) -> int:
    """A size like 4GB in bytes."""
    units = {"KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30}
    number = size.rstrip("KMGIBkmgib")
    return int(float(number) * units[size[len(number):].upper()])


def limit_processors(threads: int) -> None:
    """This process and its children use at most so many processors."""
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])
