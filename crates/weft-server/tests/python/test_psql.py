"""The commands of psql, by psql itself."""

import os
import shutil
import subprocess

import pytest

PSQL = os.environ.get("PSQL") or shutil.which("psql")
pytestmark = pytest.mark.skipif(PSQL is None, reason="psql is not installed")


def psql(server, *commands, stdin=None):
    options = [word for command in commands for word in ("-c", command)]
    found = subprocess.run(
        [PSQL, "-X", "-A", "-v", "ON_ERROR_STOP=1", server.words(), *options],
        input=stdin, capture_output=True, text=True, timeout=600,
    )
    assert found.returncode == 0, found.stderr
    assert "ERROR" not in found.stderr, found.stderr
    return found.stdout.splitlines()


def test_relations_are_listed(server):
    lines = psql(server, r"\d")
    assert lines[1] == "Schema|Name|Type|Owner"
    assert "main|Other Table|table|weft" in lines
    assert "main|t|table|weft" in lines
    assert "main|v|view|weft" in lines
    assert not any("pg_class" in line for line in lines)
    lines = psql(server, r"\dt+")
    table = next(line for line in lines if line.startswith("main|t|"))
    assert table.startswith("main|t|table|weft|permanent|heap|") and table.endswith(("kB|", "bytes|"))
    assert [line for line in psql(server, r"\dt t") if line.startswith("main")] == ["main|t|table|weft"]
    assert any(line.startswith("pg_catalog|pg_class|table") for line in psql(server, r"\dtS"))


def test_a_table_is_described(server):
    lines = psql(server, r"\d t")
    assert lines[0] == 'Table "main.t"'
    assert lines[1:] == [
        "Column|Type|Collation|Nullable|Default",
        "i|integer||not null|",
        "d|numeric(10,2)|||1.5",
        "s|character varying(20)|||",
        "b|bytea|||",
        "at|timestamp without time zone|||",
    ]
    assert psql(server, r'\d "Other Table"')[0] == 'Table "main.Other Table"'
    lines = psql(server, r"\d+ v")
    assert lines[0] == 'View "main.v"'
    assert any("SELECT i, s FROM t" in line for line in lines)


def test_keys_constraints_and_indexes_are_described(server):
    lines = psql(server, r"\d child")
    assert lines[lines.index("Indexes:"):] == [
        "Indexes:",
        '    "child_pkey" PRIMARY KEY, btree (id)',
        '    "child_by_amount" btree (amount DESC, "Odd name")',
        '    "child_code_key" UNIQUE CONSTRAINT, btree (code)',
        '    "pair" UNIQUE CONSTRAINT, btree (parent, amount)',
        "Check constraints:",
        '    "child_amount_check" CHECK (amount > 0)',
        "Foreign-key constraints:",
        '    "child_parent_fkey" FOREIGN KEY (parent) REFERENCES parent(id)',
        "Referenced by:",
        '    TABLE "shop.item" CONSTRAINT "item_owner_fkey" FOREIGN KEY (owner) REFERENCES child(id)',
    ]
    lines = psql(server, r"\d shop.item")
    assert lines[0] == 'Table "shop.item"'
    assert '    "item_pkey" PRIMARY KEY, btree (id)' in lines
    lines = psql(server, r"\d child_by_amount")
    assert lines[0] == 'Index "main.child_by_amount"'
    assert 'amount|integer|yes|amount|' in [line + "|" * (4 - line.count("|")) for line in lines]
    assert lines[-1] == 'btree, for table "main.child"'
    lines = psql(server, r"\di")
    assert "main|child_by_amount|index|weft|child" in lines
    assert any(line.startswith("main|child_pkey|index|weft|child|permanent|btree|") for line in psql(server, r"\di+"))
    assert "shop|item|table|weft" in psql(server, r"\dt shop.*")
    assert "shop|weft" in psql(server, r"\dn")


def test_databases_users_schemas_and_functions_are_listed(server):
    assert any(line.startswith("weft|weft|UTF8|C|C|") for line in psql(server, r"\l"))
    assert any(line.startswith("weft|Superuser") for line in psql(server, r"\du"))
    assert "main|weft" in psql(server, r"\dn")
    for command in [
        r"\l+", r"\dn+", r"\di", r"\di+", r"\dv", r"\dv+", r"\ds", r"\dT", r"\dT+", r"\dx", r"\dp", r"\db", r"\db+", r"\dconfig",
        r"\sv v", r"\da", r"\dA", r"\dAc", r"\dAf", r"\dAo", r"\dAp", r"\dc", r"\dC", r"\dd", r"\ddp", r"\dD", r"\deu", r"\des", r"\dew",
        r"\det", r"\dF", r"\dFd", r"\dFp", r"\dFt", r"\dl", r"\dL", r"\dL+", r"\dm", r"\do", r"\dO", r"\dP", r"\drds", r"\dRp", r"\dRs",
        r"\dX", r"\dy", r"\du+", r"\dg", r"\z", r"\dS+ pg_class",
    ]:
        psql(server, command)


def test_functions_and_macros_are_listed_and_shown(server):
    psql(server, "CREATE OR REPLACE MACRO plus(a, b := 1) AS a + b", "CREATE OR REPLACE MACRO pairs(n) AS TABLE SELECT n, n")
    lines = psql(server, r"\df")
    assert lines[1] == "Schema|Name|Result data type|Argument data types|Type"
    assert lines[2:] == ["main|pairs|SETOF record|n|func", 'main|plus|"any"|a, b DEFAULT 1|func', "(2 rows)"]
    assert [line.split("|")[1] for line in psql(server, r"\df plus")[2:-1]] == ["plus"]
    assert [line.split("|")[:2] for line in psql(server, r"\df abs")[2:-1]] == [["pg_catalog", "abs"]]
    assert any(line.startswith("pg_catalog|sum|") and line.endswith("|agg") for line in psql(server, r"\dfS su*"))
    assert any(line.startswith("pg_catalog|row_number|") and line.endswith("|window") for line in psql(server, r"\dfS row*"))
    assert any("|sql|" in line and "CREATE" in line for line in psql(server, r"\df+ plus"))
    shown = psql(server, r"\sf plus")
    assert "MACRO plus" in shown[0] and "a + b" in shown[0]
    assert psql(server, r"\sf pairs(n)")[0].startswith("CREATE")
    assert any(line.startswith("pg_catalog|avg|") for line in psql(server, r"\da avg"))
    psql(server, "DROP MACRO plus", "DROP MACRO pairs")
    assert psql(server, r"\df")[-1] == "(0 rows)"


def test_sizes_are_those_of_rows_and_indexes(server):
    psql(
        server,
        "CREATE TABLE sized (i INTEGER PRIMARY KEY, s VARCHAR)",
        "INSERT INTO sized SELECT value, 'row ' || value FROM generate_series(1, 20000) AS g(value)",
        "CREATE INDEX sized_by_s ON sized (s)",
    )
    sizes = psql(
        server,
        "SELECT pg_table_size('sized'), pg_relation_size('sized'), pg_indexes_size('sized'), pg_total_relation_size('sized'), "
        "pg_relation_size('sized_by_s'), pg_relation_size('sized_pkey'), pg_indexes_size('sized_by_s')",
    )[1]
    table, main, indexes, total, by_s, key, none = map(int, sizes.split("|"))
    assert table == main > 0 and total == table + indexes
    assert by_s > 0 and key > 0 and by_s + key == indexes and none == 0
    shown = next(line for line in psql(server, r"\dt+ sized") if line.startswith("main|sized"))
    assert shown.split("|")[6].endswith("kB")
    shown = next(line for line in psql(server, r"\di+ sized_by_s") if line.startswith("main|sized_by_s"))
    assert shown.split("|")[7].endswith("kB")
    assert psql(server, "SELECT pg_table_size('v'), pg_relation_size('sized', 'fsm'), pg_table_size(1)")[1] == "0|0|"
    psql(server, "DROP TABLE sized")


def test_copy_goes_both_ways(server):
    psql(server, "CREATE TABLE copied (i INTEGER, s VARCHAR, b BLOB, at TIMESTAMP)")
    rows = "1\ta\\tb\\\\\t\\\\x00ff\t2020-01-02 03:04:05.5\n2\t\\N\t\\N\t\\N\n"
    assert psql(server, r"\copy copied FROM STDIN", stdin=rows) == ["COPY 2"]
    assert psql(server, r"\copy copied TO STDOUT") == rows.splitlines()
    csv = psql(server, r"\copy copied TO STDOUT (FORMAT csv, HEADER)")
    assert csv == ["i,s,b,at", "1,a\tb\\,\\x00ff,2020-01-02 03:04:05.5", "2,,,"]
    text = "\n".join(csv) + "\n"
    assert psql(server, r"\copy copied FROM STDIN (FORMAT csv, HEADER)", stdin=text) == ["COPY 2"]
    counts = psql(server, "SELECT i, count(*) FROM copied GROUP BY i ORDER BY i")
    assert counts[1:3] == ["1|2", "2|2"]
    psql(server, "DROP TABLE copied")
