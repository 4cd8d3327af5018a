"""Clients of npm and Maven, where these are installed: NODE_PATH names the modules of Node.js, PGJDBC the jar of pgjdbc."""

import os
import pathlib
import shutil
import subprocess

import pytest

from conftest import Server

TESTS = pathlib.Path(__file__).parent.parent


def run(*command):
    server = Server()
    try:
        found = subprocess.run(
            [*command, str(server.port)], capture_output=True, text=True, timeout=600
        )
    finally:
        server.stop()
    assert found.returncode == 0, found.stderr
    assert found.stdout.splitlines()[-1] == "done"


@pytest.mark.skipif(
    shutil.which("node") is None or "NODE_PATH" not in os.environ, reason="node-postgres is not installed"
)
def test_node_postgres():
    run("node", str(TESTS / "node" / "clients.js"))


@pytest.mark.skipif(
    shutil.which("java") is None or "PGJDBC" not in os.environ, reason="pgjdbc is not installed"
)
def test_pgjdbc():
    run("java", "-cp", os.environ["PGJDBC"], str(TESTS / "jdbc" / "Clients.java"))
