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


def test_keys_constraints_and_indexes_are_reflected(engine):
    found = sa.inspect(engine)
    key = found.get_pk_constraint("child")
    assert (key["constrained_columns"], key["name"]) == (["id"], "child_pkey")
    [foreign] = found.get_foreign_keys("child")
    assert foreign["name"] == "child_parent_fkey"
    assert foreign["constrained_columns"] == ["parent"]
    assert (foreign["referred_schema"], foreign["referred_table"]) == (None, "parent")
    assert foreign["referred_columns"] == ["id"]
    unique = {one["name"]: one["column_names"] for one in found.get_unique_constraints("child")}
    assert unique == {"child_code_key": ["code"], "pair": ["parent", "amount"]}
    [check] = found.get_check_constraints("child")
    assert (check["name"], check["sqltext"]) == ("child_amount_check", "amount > 0")
    indexes = {index["name"]: index for index in found.get_indexes("child")}
    assert sorted(indexes) == ["child_by_amount", "child_code_key", "pair"]
    assert indexes["child_by_amount"]["column_names"] == ["amount", "Odd name"]
    assert not indexes["child_by_amount"]["unique"]
    assert indexes["child_by_amount"]["column_sorting"] == {"amount": ("desc",)}
    assert indexes["pair"]["unique"] and indexes["pair"]["duplicates_constraint"] == "pair"
    assert "shop" in found.get_schema_names()
    assert found.get_table_names(schema="shop") == ["item"]
    [foreign] = found.get_foreign_keys("item", schema="shop")
    assert (foreign["referred_table"], foreign["referred_columns"]) == ("child", ["id"])


def test_tables_with_keys_are_made_as_they_were_described(engine):
    metadata = sa.MetaData()
    authors = sa.Table("authors", metadata, sa.Column("id", sa.Integer, primary_key=True, autoincrement=False))
    sa.Table(
        "books", metadata,
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("author", sa.ForeignKey(authors.c.id), nullable=False),
        sa.Column("title", sa.String(40), index=True),
        sa.UniqueConstraint("author", "title"),
        sa.CheckConstraint("id > 0", name="positive"),
    )
    metadata.create_all(engine)
    again = sa.MetaData()
    again.reflect(engine, only=["books"])
    books = again.tables["books"]
    assert [column.name for column in books.primary_key] == ["id"]
    assert [key.target_fullname for key in books.foreign_keys] == ["authors.id"]
    assert "ix_books_title" in [index.name for index in books.indexes]
    with engine.connect() as connection, pytest.raises(sa.exc.IntegrityError):
        connection.execute(books.insert(), [{"id": 1, "author": 7, "title": "none wrote it"}])
    metadata.drop_all(engine)


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
