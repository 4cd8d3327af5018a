"""Relations, put together step by step."""

from pathlib import Path

import pytest
import weft
from weft import Connection


@pytest.fixture
def trips(con: Connection) -> weft.Relation:
    con.execute("CREATE TABLE trips (vendor VARCHAR, total INTEGER)")
    con.execute("INSERT INTO trips VALUES ('a', 10), ('b', 20), ('a', 30), ('c', 5)")
    return con.table("trips")


def test_steps(trips: weft.Relation) -> None:
    sums = trips.filter("total > 5").aggregate("vendor, sum(total) AS total").order("vendor")
    assert sums.fetchall() == [("a", 40), ("b", 20)]
    assert trips.project("total * 2 AS double").order("double DESC").limit(2).fetchall() == [(60,), (40,)]
    assert trips.order("total").limit(1, offset=1).fetchall() == [("a", 10)]
    assert trips.aggregate("count(*)").fetchall() == [(4,)]
    assert trips.filter("false").aggregate("count(*) AS n").fetchall() == [(0,)]
    assert trips.aggregate("max(total)", group_by="vendor").order("1").fetchall() == [(5,), (20,), (30,)]
    assert trips.project("vendor").distinct().count() == 3
    assert len(trips) == 4


def test_a_relation_stays_as_it_is(trips: weft.Relation) -> None:
    few = trips.filter("total = 5")
    assert trips.count() == 4
    assert few.fetchall() == [("c", 5)]
    assert few.columns == ["vendor", "total"]
    assert few.types == ["VARCHAR", "INTEGER"]


def test_joins(con: Connection, trips: weft.Relation) -> None:
    names = con.sql("SELECT * FROM (VALUES ('a', 'Ada'), ('b', 'Bob')) AS t(vendor, name)")
    assert trips.join(names, ["vendor"]).project("name, total").order("total").fetchall() == [
        ("Ada", 10),
        ("Bob", 20),
        ("Ada", 30),
    ]
    joined = trips.alias("x").join(names.alias("y"), "x.vendor = y.vendor AND y.name = 'Bob'", "left")
    assert joined.count() == 4
    assert trips.join(names, ["vendor"], "anti").fetchall() == [("c", 5)]
    assert trips.cross(names.project("name")).count() == 8
    with pytest.raises(weft.InterfaceError):
        trips.join(names, ["vendor"], "sideways")


def test_sets(con: Connection) -> None:
    one, two = con.sql("SELECT 1 AS a"), con.sql("SELECT 2 AS a")
    assert one.union(two).order("a").fetchall() == [(1,), (2,)]
    assert one.union(one).count() == 2
    assert one.intersect(two).fetchall() == []
    assert one.except_(two).fetchall() == [(1,)]


def test_parameters_and_frames_go_along(con: Connection) -> None:
    rows = [{"a": 1}, {"a": 2}, {"a": 3}]
    relation = con.sql("SELECT * FROM rows WHERE a > $low", {"low": 1})
    del rows
    assert relation.filter("a < 3").fetchall() == [(2,)]
    other = con.sql("SELECT $high AS a", {"high": 3})
    assert relation.join(other, ["a"]).fetchall() == [(3,)]


def test_tables_are_made(con: Connection, trips: weft.Relation, tmp_path: Path) -> None:
    made = trips.filter("vendor = 'a'").create("of_a")
    assert made.count() == 2
    assert trips.insert_into("of_a") == 4
    assert con.table("of_a").count() == 6
    assert trips.to_parquet(tmp_path / "t.parquet") == 4
    assert con.read_parquet(tmp_path / "t.parquet").count() == 4
    assert trips.to_csv(tmp_path / "it's.csv") == 4
    assert con.read_csv(tmp_path / "it's.csv").aggregate("sum(total)").fetchall() == [(65,)]
    (tmp_path / "t.json").write_text('{"a": 1}\n{"a": 2}\n')
    assert con.read_json(tmp_path / "t.json").order("a").fetchall() == [(1,), (2,)]


def test_plans(trips: weft.Relation) -> None:
    assert "trips" in trips.explain()
    analyzed = trips.aggregate("vendor, count(*)").explain(analyze=True)
    assert "rows" in analyzed
    assert analyzed._repr_html_().startswith("<pre>")


def test_commands(con: Connection) -> None:
    con.sql("CREATE TABLE t AS SELECT 1 AS a")
    assert con.table("t").fetchall() == [(1,)]
    with pytest.raises(weft.ProgrammingError):
        con.table("nowhere")


def test_progress(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("weft._progress._SHOWN_AFTER", 0.0)
    with weft.connect(threads=2, progress=True) as con:
        con.execute("SELECT count(*) FROM generate_series(1, 30000000) AS g(value) WHERE value % 7 = 3").fetchall()
    assert "rows" in capsys.readouterr().err
