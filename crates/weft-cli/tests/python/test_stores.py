"""Files of an object store: read in all formats, listed by patterns, written whole or not at all, with credentials from all places."""

import pytest

from conftest import BUCKET, Shell

ROWS = "SELECT value AS n, 'text ' || value % 10 AS s, value % 3 AS p FROM generate_series(1, 1000) AS g(value)"
SUMS = "SELECT count(*) AS c, sum(n) AS n, min(s) AS s FROM"
EXPECTED = [{"c": 1000, "n": 500500, "s": "text 0"}]


def secret(endpoint, *options):
    """A statement that makes a secret for the server."""
    host = endpoint.removeprefix("http://")
    listed = [
        "TYPE s3",
        "KEY_ID 'id'",
        "SECRET 'hidden-key'",
        "REGION 'us-east-1'",
        f"ENDPOINT '{host}'",
        "URL_STYLE 'path'",
        "USE_SSL false",
        *options,
    ]
    return f"CREATE SECRET s ({', '.join(listed)})"


@pytest.mark.parametrize("name", ["t.parquet", "t.csv", "t.csv.gz", "t.ndjson", "t.arrow"])
def test_files_are_written_and_read(shell, name):
    url = f"s3://{BUCKET}/formats/{name}"
    assert shell.rows(f"COPY ({ROWS}) TO '{url}'", f"{SUMS} '{url}'") == EXPECTED


@pytest.mark.parametrize("engine", ["weft", "datafusion", "auto"])
def test_all_engines_read_parquet(shell, engine):
    url = f"s3://{BUCKET}/engines/{engine}.parquet"
    copy = f"COPY ({ROWS}) TO '{url}' (ROW_GROUP_SIZE 100)"
    counted = f"SELECT p, count(*) AS c, sum(n) AS n FROM '{url}' WHERE n > 500 GROUP BY p ORDER BY p"
    assert shell.rows(f"SET engine = '{engine}'", copy, counted) == [
        {"p": 0, "c": 167, "n": 125250},
        {"p": 1, "c": 167, "n": 125417},
        {"p": 2, "c": 166, "n": 124583},
    ]


def test_patterns_and_directories_list_the_bucket(shell):
    base = f"s3://{BUCKET}/many"
    copies = [f"COPY (SELECT {n} AS n) TO '{base}/year={n}/part.parquet'" for n in range(3)]
    listed = shell.rows(*copies, f"SELECT count(*) AS c, sum(n) AS n FROM '{base}/*/*.parquet'")
    assert listed == [{"c": 3, "n": 3}]
    assert shell.rows(f"SELECT count(*) AS c FROM '{base}/'") == [{"c": 3}]
    files = shell.rows(f"SELECT file FROM glob('{base}/**/*.parquet') ORDER BY file")
    assert files[0] == {"file": f"{base}/year=0/part.parquet"} and len(files) == 3
    by_year = f"SELECT year, n FROM read_parquet('{base}/*/*.parquet', hive_partitioning = true) WHERE year = 2"
    assert shell.rows(by_year) == [{"year": 2, "n": 2}]
    assert "no object matches" in shell.error(f"SELECT * FROM '{base}/*.nothing.parquet'")


def test_partitions_are_written_as_directories(shell, store):
    base = f"s3://{BUCKET}/parts"
    copy = f"COPY ({ROWS}) TO '{base}' (FORMAT parquet, PARTITION_BY (p), FILENAME_PATTERN 'part_'"
    shell.rows(f"{copy})")
    names = [found["Key"] for found in store.list_objects_v2(Bucket=BUCKET, Prefix="parts/")["Contents"]]
    assert names == [f"parts/p={p}/part_0.parquet" for p in range(3)]
    assert "not empty" in shell.error(f"{copy})")
    counted = f"SELECT count(*) AS c FROM read_parquet('{base}/*/*.parquet', hive_partitioning = true)"
    assert shell.rows(f"{copy}, APPEND)", counted) == [{"c": 2000}]
    assert shell.rows(f"{copy}, OVERWRITE)", counted) == [{"c": 1000}]


def test_files_of_a_size_are_written(shell, store):
    base = f"s3://{BUCKET}/sized"
    rows = "SELECT value AS n, md5(value::VARCHAR) AS s FROM generate_series(1, 20000) AS g(value)"
    counted = f"SELECT count(*) AS c, sum(n) AS n FROM read_csv('{base}/data_*.csv')"
    copied = shell.rows(f"COPY ({rows}) TO '{base}' (FORMAT csv, FILE_SIZE_BYTES '200KB')", counted)
    assert copied == [{"c": 20000, "n": 200010000}]
    found = store.list_objects_v2(Bucket=BUCKET, Prefix="sized/")["Contents"]
    assert len(found) > 2 and all(one["Size"] < 260000 for one in found)


@pytest.mark.parametrize("name", ["t.parquet", "t.csv"])
def test_what_was_read_is_kept_until_it_changes(shell, tmp_path, name):
    url = f"s3://{BUCKET}/kept/{name}"
    on = [f"SET cache_directory = '{tmp_path}'", "SET cache_size = '10MB'"]
    counts = "SELECT bytes_from_cache > 0 AS cache, bytes_from_network > 0 AS network FROM weft_cache"
    shell.run(f"COPY ({ROWS}) TO '{url}'")
    assert shell.rows(*on, f"{SUMS} '{url}'") == EXPECTED
    # Another process reads it from the disk.
    assert shell.rows(*on, f"CREATE TABLE r AS {SUMS} '{url}'", counts) == [{"cache": True, "network": False}]
    shell.run(f"COPY (SELECT n + 1 AS n, s, p FROM ({ROWS}) AS t) TO '{url}'")
    changed = [{**EXPECTED[0], "n": 501500}]
    assert shell.rows(*on, f"{SUMS} '{url}'") == changed
    assert shell.rows(*on, f"{SUMS} '{url}'") == changed


def test_large_objects_are_written_in_parts(shell, store):
    url = f"s3://{BUCKET}/large.parquet"
    rows = "SELECT value AS n, md5(value::VARCHAR) AS s FROM generate_series(1, 600000) AS g(value)"
    copied = shell.rows(
        f"COPY ({rows}) TO '{url}' (COMPRESSION none)",
        f"SELECT count(*) AS c, count(DISTINCT s) AS d FROM '{url}'",
    )
    assert copied == [{"c": 600000, "d": 600000}]
    assert "-" in store.head_object(Bucket=BUCKET, Key="large.parquet")["ETag"]


def test_a_copy_that_fails_leaves_nothing(shell, store):
    url = f"s3://{BUCKET}/failed/t.parquet"
    shell.error(f"COPY (SELECT 1 / (value - 900000) AS x FROM generate_series(1, 900000) AS g(value)) TO '{url}'")
    assert "Contents" not in store.list_objects_v2(Bucket=BUCKET, Prefix="failed/")
    assert "Uploads" not in store.list_multipart_uploads(Bucket=BUCKET)


def test_tables_and_views(shell):
    url = f"s3://{BUCKET}/tables/t.parquet"
    counted = shell.rows(
        f"COPY ({ROWS}) TO '{url}'",
        f"CREATE TABLE t AS SELECT * FROM '{url}'",
        f"COPY t FROM '{url}'",
        f"CREATE VIEW v AS SELECT * FROM '{url}'",
        "SELECT (SELECT count(*) FROM t) AS t, (SELECT count(*) FROM v) AS v",
    )
    assert counted == [{"t": 2000, "v": 1000}]


def test_secrets_give_credentials(bare_shell, shell, endpoint):
    url = f"s3://{BUCKET}/secrets.parquet"
    shell.rows(f"COPY ({ROWS}) TO '{url}'")
    assert bare_shell.rows(secret(endpoint), f"{SUMS} '{url}'") == EXPECTED
    scoped = secret(endpoint, f"SCOPE 's3://{BUCKET}'")
    assert bare_shell.rows(scoped, f"{SUMS} '{url}'") == EXPECTED
    listed = bare_shell.rows(scoped, "SELECT * FROM weft_secrets")
    assert listed[0]["name"] == "s" and "hidden-key" not in str(listed)


def test_profiles_give_credentials(shell, endpoint, tmp_path):
    url = f"s3://{BUCKET}/profiles.parquet"
    shell.rows(f"COPY ({ROWS}) TO '{url}'")
    (tmp_path / "credentials").write_text("[other]\naws_access_key_id = id\naws_secret_access_key = key\n")
    (tmp_path / "config").write_text(f"[profile other]\nregion = us-east-1\nendpoint_url = {endpoint}\n")
    environment = {
        "AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "credentials"),
        "AWS_CONFIG_FILE": str(tmp_path / "config"),
        "AWS_PROFILE": "other",
    }
    assert Shell(environment).rows(f"{SUMS} '{url}'") == EXPECTED
    missing = Shell({**environment, "AWS_PROFILE": "none"}).error(f"{SUMS} '{url}'")
    assert "no profile none" in missing


def test_errors_say_what_is_missing(shell, bare_shell, endpoint):
    missing = shell.error(f"SELECT * FROM 's3://{BUCKET}/none.parquet'")
    assert f"s3://{BUCKET}/none.parquet" in missing and "404" in missing and "NoSuchKey" in missing
    assert "NoSuchBucket" in shell.error("SELECT * FROM 's3://no-such-bucket-here/none.parquet'")
    nowhere = secret("http://127.0.0.1:9")
    errors = bare_shell.error("SET http_retries = 0", nowhere, f"SELECT * FROM 's3://{BUCKET}/x.parquet'")
    assert "no connection" in errors and "hidden-key" not in errors
