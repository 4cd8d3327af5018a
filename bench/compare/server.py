"""Compares Weft's server with PostgreSQL under pgbench and COPY, in one run.

    server.py --weft target/release/weft --scale 100 --seconds 20 --rounds 3

Both servers run at the same time on the same disk, and only one of them has clients at a time: they take turns, and times are
medians of the rounds. PostgreSQL comes from `--postgres`, the directory of its programs (default: what `pg_config --bindir` says),
with `shared_buffers` of half of `--memory` and the rest for the operating system's cache; Weft may use `--memory` in all. Commits
wait for the disk in both. Run by root, PostgreSQL runs as the user `postgres`, whom Debian's package makes.
"""

import argparse
import contextlib
import json
import os
import pathlib
import pwd
import re
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "bench"))

from compare.engines import bytes_of  # noqa: E402

# What is measured: the options of pgbench.
SCRIPTS = {
    "select": ["-S", "-M", "prepared", "-c", "16", "-j", "2"],
    "tpc_b": ["-M", "prepared", "-c", "64", "-j", "2"],
}
ROWS_COPIED = 1_000_000
SECONDS_TO_START = 60


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Server:
    """A server that clients of PostgreSQL reach at a port."""

    def __init__(self, name: str, user: str, database: str) -> None:
        self.name, self.user, self.database = name, user, database
        self.port = free_port()

    def environment(self) -> dict[str, str]:
        own = {"PGHOST": "127.0.0.1", "PGPORT": str(self.port), "PGUSER": self.user}
        return {**os.environ, **own, "PGDATABASE": self.database, "PGPASSWORD": ""}

    def client(self, *command: str, stdout: int | None = subprocess.PIPE) -> str:
        """Runs a client; gives what it prints."""
        done = subprocess.run(command, env=self.environment(), stdout=stdout, stderr=subprocess.PIPE, text=True)
        if done.returncode != 0:
            raise SystemExit(f"{self.name}: {' '.join(command)}: {done.stderr.strip()[-2000:]}")
        return done.stdout or ""

    def psql(self, statement: str, stdout: int | None = subprocess.PIPE) -> str:
        return self.client("psql", "-X", "-q", "-v", "ON_ERROR_STOP=1", "-c", statement, stdout=stdout)

    def wait(self) -> None:
        """Waits until it answers."""
        end = time.monotonic() + SECONDS_TO_START
        while time.monotonic() < end:
            answer = subprocess.run(["psql", "-X", "-c", "SELECT 1"], env=self.environment(), capture_output=True)
            if answer.returncode == 0:
                return
            time.sleep(0.1)
        raise SystemExit(f"{self.name} does not answer: {answer.stderr.decode().strip()}")


@contextlib.contextmanager
def running(server: Server, command: list[str], **options):
    """A server while it runs."""
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **options)
    try:
        server.wait()
        yield server
    finally:
        child.terminate()
        child.wait()


def weft(program: str, directory: pathlib.Path, memory: str):
    server = Server("weft", "weft", "weft")
    command = [program, "serve", str(directory / "weft"), "--listen", f"127.0.0.1:{server.port}"]
    return running(server, [*command, "--memory-limit", memory])


def postgres(programs: str, directory: pathlib.Path, memory: str):
    server = Server("postgres", "postgres", "postgres")
    data = directory / "postgres"
    as_user: dict = {}
    if os.geteuid() == 0:
        data.mkdir()
        shutil.chown(data, "postgres", "postgres")
        account = pwd.getpwnam("postgres")
        as_user = {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}
    initialize = [f"{programs}/initdb", "-D", str(data), "-U", "postgres", "-A", "trust", "-E", "UTF8"]
    subprocess.run(initialize, check=True, stdout=subprocess.DEVNULL, **as_user)
    settings = {
        "port": server.port,
        "listen_addresses": "127.0.0.1",
        "unix_socket_directories": "",
        "shared_buffers": f"{bytes_of(memory) // 2 >> 20}MB",
        "max_connections": 200,
        # Checkpoints are to come by time, as few as there can be in a short run.
        "max_wal_size": "16GB",
    }
    command = [f"{programs}/postgres", "-D", str(data)]
    for name, value in settings.items():
        command += ["-c", f"{name}={value}"]
    return running(server, command, **as_user)


def transactions_per_second(server: Server, script: str, seconds: int) -> float:
    output = server.client("pgbench", "-n", *SCRIPTS[script], "-T", str(seconds))
    found = re.search(r"^tps = ([0-9.]+)", output, re.MULTILINE)
    assert found, output
    failed = re.search(r"^number of failed transactions: ([0-9]+)", output, re.MULTILINE)
    assert failed is None or int(failed.group(1)) == 0, output
    return float(found.group(1))


def rows_per_second(server: Server, case: str, directory: pathlib.Path) -> float:
    """Rows that psql copies out of a server, or into it."""
    if case == "copy_in":
        server.psql("DROP TABLE IF EXISTS copied")
        server.psql("CREATE TABLE copied (aid int NOT NULL, bid int, abalance int, filler char(84))")
    start = time.perf_counter()
    if case == "copy_out":
        statement = f"COPY (SELECT * FROM pgbench_accounts WHERE aid <= {ROWS_COPIED}) TO STDOUT"
        server.psql(statement, stdout=subprocess.DEVNULL)
    else:
        server.psql(f"\\copy copied FROM '{directory / 'rows.txt'}'")
    rate = ROWS_COPIED / (time.perf_counter() - start)
    if case == "copy_in":
        counted = server.client("psql", "-X", "-A", "-t", "-c", "SELECT count(*) FROM copied").strip()
        assert counted == str(ROWS_COPIED), counted
    return rate


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weft", required=True, help="the binary")
    parser.add_argument("--postgres", help="the directory of PostgreSQL's programs")
    parser.add_argument("--scale", type=int, default=100, help="pgbench's: 100,000 accounts each, 10 at least (default: 100)")
    parser.add_argument("--memory", default="8GB", help="what each server may use (default: 8GB)")
    parser.add_argument("--seconds", type=int, default=20, help="of each run of pgbench (default: 20)")
    parser.add_argument("--rounds", type=int, default=3, help="runs of each case (default: 3)")
    parser.add_argument("--cases", default="select,tpc_b,copy_out,copy_in", help="default: %(default)s")
    parser.add_argument("--data", help="where the databases are made and removed again (default: a temporary directory)")
    parser.add_argument("--json", action="store_true", help="print one object per case")
    args = parser.parse_args()
    cases = args.cases.split(",")
    if args.scale * 100_000 < ROWS_COPIED:
        parser.error(f"a scale of {ROWS_COPIED // 100_000} at least has the rows that are copied")
    programs = args.postgres
    if not programs:
        programs = subprocess.run(["pg_config", "--bindir"], capture_output=True, text=True, check=True).stdout.strip()
    with contextlib.ExitStack() as stack:
        directory = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory(dir=args.data)))
        directory.chmod(0o755)
        servers = [
            stack.enter_context(weft(args.weft, directory, args.memory)),
            stack.enter_context(postgres(programs, directory, args.memory)),
        ]
        for server in servers:
            start = time.perf_counter()
            server.client("pgbench", "-i", "-q", "-s", str(args.scale))
            print(f"{server.name}: initialized in {time.perf_counter() - start:.1f} s", file=sys.stderr)
        with open(directory / "rows.txt", "w") as rows:
            statement = f"COPY (SELECT * FROM pgbench_accounts WHERE aid <= {ROWS_COPIED}) TO STDOUT"
            servers[1].psql(statement, stdout=rows.fileno())
        for case in cases:
            rates: dict[str, list[float]] = {server.name: [] for server in servers}
            for at in range(args.rounds):
                for server in servers if at % 2 == 0 else servers[::-1]:
                    if case in SCRIPTS:
                        rate = transactions_per_second(server, case, args.seconds)
                    else:
                        rate = rows_per_second(server, case, directory)
                    rates[server.name].append(rate)
            medians = {name: statistics.median(values) for name, values in rates.items()}
            ratio = medians["weft"] / medians["postgres"]
            if args.json:
                print(json.dumps({"case": case, **medians, "ratio": ratio}), flush=True)
                continue
            unit = "transactions/s" if case in SCRIPTS else "rows/s"
            print(
                f"{case:9} weft {medians['weft']:>12,.0f}  postgres {medians['postgres']:>12,.0f} {unit:15} ratio {ratio:.2f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
