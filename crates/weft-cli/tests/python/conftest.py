"""A server of S3 (moto), and the shell of the binary that the variable WEFT names."""

import json
import os
import subprocess

import boto3
import pytest
from moto.server import ThreadedMotoServer

BUCKET = "weft-tests"


@pytest.fixture(scope="session")
def endpoint():
    """The address of the server."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture(scope="session")
def store(endpoint):
    """A client of the server, which has an empty bucket."""
    client = boto3.client(
        "s3",
        endpoint_url=endpoint,
        aws_access_key_id="id",
        aws_secret_access_key="key",
        region_name="us-east-1",
    )
    client.create_bucket(Bucket=BUCKET)
    return client


class Shell:
    """The shell over a database in memory."""

    def __init__(self, environment):
        self.environment = environment

    def run(self, *statements):
        """Runs statements; their output and what was said of errors."""
        weft = os.environ.get("WEFT", "weft")
        done = subprocess.run(
            [weft, "--mode", "jsonlines", "--bail", "on", "--no-init"],
            input="\n".join(statement + ";" for statement in statements),
            capture_output=True,
            text=True,
            timeout=120,
            env={"PATH": os.environ["PATH"], "HOME": "/nonexistent", **self.environment},
        )
        return done.returncode, done.stdout, done.stderr

    def rows(self, *statements):
        """The rows of the last statement, as dictionaries."""
        code, output, errors = self.run(*statements)
        assert code == 0, errors
        return [json.loads(line) for line in output.splitlines() if line.startswith("{")]

    def error(self, *statements):
        """What the shell says of a statement that fails."""
        code, output, errors = self.run(*statements)
        assert code != 0, output
        return errors


@pytest.fixture
def shell(endpoint, store):
    """A shell whose environment has the credentials of the server."""
    return Shell(
        {
            "AWS_ACCESS_KEY_ID": "id",
            "AWS_SECRET_ACCESS_KEY": "key",
            "AWS_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": endpoint,
            "AWS_ALLOW_HTTP": "true",
        }
    )


@pytest.fixture
def bare_shell(store):
    """A shell without credentials."""
    return Shell({"AWS_EC2_METADATA_DISABLED": "true"})
