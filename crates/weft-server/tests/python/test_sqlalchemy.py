"""SQLAlchemy over psycopg: what it reads of the catalog."""

import pytest
import sqlalchemy as sa


@pytest.fixture(scope="module")
def engine(server):
    engine = sa.create_engine(
        f"postgresql+psycopg://me@127.0.0.1:{server.port}/weft", isolation_level="AUTOCOMMIT"
    )
    yield engine
    engine.dispose()


def test_tables_and_views_are_reflected(engine):
    found = sa.inspect(engine)
    assert found.default_schema_name == "main"
    assert set(found.get_schema_names()) >= {"main", "information_schema"}
    assert set(found.get_table_names()) >= {"t", "Other Table"}
    assert found.get_view_names() == ["v"]
    assert found.has_table("t") and not found.has_table("nothing")
    columns = {column["name"]: column for column in found.get_columns("t")}
    assert list(columns) == ["i", "d", "s", "b", "at"]
    assert isinstance(columns["i"]["type"], sa.INTEGER) and not columns["i"]["nullable"]
    assert (columns["d"]["type"].precision, columns["d"]["type"].scale) == (10, 2)
    assert columns["d"]["default"] == "1.5"
    assert columns["s"]["type"].length == 20
    assert found.get_pk_constraint("t")["constrained_columns"] == []
    assert found.get_foreign_keys("t") == []
    assert found.get_indexes("t") == []
    assert found.get_unique_constraints("t") == []
    assert found.get_check_constraints("t") == []
    assert found.get_table_comment("t") == {"text": None}
    assert "SELECT i, s FROM t" in found.get_view_definition("v")


def test_a_reflected_table_is_used(engine):
    metadata = sa.MetaData()
    table = sa.Table("t", metadata, autoload_with=engine)
    with engine.connect() as connection:
        rows = connection.execute(sa.select(table.c.i, table.c.s).where(table.c.i < 3).order_by(table.c.i)).all()
        assert rows == [(1, "one"), (2, None)]


def test_tables_are_made_filled_and_dropped(engine):
    metadata = sa.MetaData()
    table = sa.Table("made", metadata, sa.Column("i", sa.Integer), sa.Column("s", sa.String(10)))
    metadata.create_all(engine)
    with engine.connect() as connection:
        connection.execute(table.insert(), [{"i": 1, "s": "a"}, {"i": 2, "s": "b"}])
        assert connection.execute(sa.select(sa.func.count()).select_from(table)).scalar() == 2
    metadata.drop_all(engine)
    assert not sa.inspect(engine).has_table("made")
