"""A server for the tests, of the binary that the variable WEFT names."""

import os
import subprocess

import psycopg
import pytest


class Server:
    """A running server, on a port of its own."""

    def __init__(self, directory=None, *options):
        command = [os.environ["WEFT"], "serve", "--listen", "127.0.0.1:0", "--memory-limit", "256MB", *options]
        if directory is not None:
            command.append(str(directory))
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        line = self.process.stdout.readline()
        self.port = int(line.split()[-1])

    def words(self, user="me", **more):
        more = "".join(f" {name}={value}" for name, value in more.items())
        return f"host=127.0.0.1 port={self.port} user={user} dbname=weft{more}"

    def connect(self, **more):
        return psycopg.connect(self.words(**more), autocommit=True)

    def stop(self):
        self.process.terminate()
        self.process.wait(timeout=600)


@pytest.fixture(scope="session")
def server():
    server = Server()
    with server.connect() as connection:
        connection.execute("CREATE TABLE t (i INTEGER NOT NULL, d DECIMAL(10, 2) DEFAULT 1.5, s VARCHAR(20), b BLOB, at TIMESTAMP)")
        connection.execute("CREATE TABLE \"Other Table\" (x BIGINT)")
        connection.execute("CREATE VIEW v AS SELECT i, s FROM t")
        connection.execute("INSERT INTO t (i, s) VALUES (1, 'one'), (2, NULL)")
        connection.execute("CREATE TABLE parent (id INTEGER PRIMARY KEY, name VARCHAR)")
        connection.execute(
            "CREATE TABLE child (id BIGINT PRIMARY KEY, parent INTEGER REFERENCES parent, code VARCHAR(10) UNIQUE, "
            "amount INTEGER CHECK (amount > 0), \"Odd name\" INTEGER, CONSTRAINT pair UNIQUE (parent, amount))"
        )
        connection.execute("CREATE INDEX child_by_amount ON child (amount DESC, \"Odd name\")")
        connection.execute("CREATE SCHEMA shop")
        connection.execute("CREATE TABLE shop.item (id INTEGER PRIMARY KEY, owner BIGINT REFERENCES child (id))")
    yield server
    server.stop()


@pytest.fixture
def connection(server):
    with server.connect() as connection:
        yield connection
