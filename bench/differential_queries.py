"""Random queries over random tables: joins, LATERAL, USING, aggregates, grouping sets, windows, subqueries, WITH, set operations."""

from differential_expressions import Expressions, Scope
from differential_tables import random_table
from differential_tree import Node
from differential_windows import Windows

QUANTILES = ["0", "0.1", "0.25", "0.5", "0.77", "1"]
# Kinds whose equal values cannot be told apart.
ORDERED = ["int", "big", "dec", "dbl", "str", "date", "ts"]
USING_JOINS = ["JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"]
JOINS = ["JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "JOIN", "LEFT JOIN", "SEMI JOIN", "ANTI JOIN"]


class Query:
    """A query as a tree, and the positions of the columns that it is sorted by."""

    def __init__(self, root, order=()):
        self.root, self.order = root, order

    def sql(self):
        return self.root.text()

    def with_root(self, root):
        is_sorted = root.kind == "ordered" and root.parts[1].text() == self.root.parts[1].text()
        return Query(root, self.order if is_sorted else ())


class Generator:
    """Makes tables, and queries over them."""

    def __init__(self, rng, rows_about, windows_share, large_share=0):
        self.rng, self.rows_about, self.windows_share, self.large_share = rng, rows_about, windows_share, large_share
        self.made, self.aliases = [], 0
        # A large table, as long as the query at hand does not have it, and what WITH has named in it.
        self.large, self.is_large, self.named = None, False, []
        self.expressions = Expressions(rng, self.subquery)
        self.plain = Expressions(rng)
        self.windows = Windows(rng, self.plain)

    def tables(self):
        """Three tables, of which one may be large."""
        self.made = [random_table(self.rng, f"t{index}", self.rows_about) for index in range(3)]
        if self.rng.random() < self.large_share:
            self.made[0] = random_table(self.rng, "t0", self.rows_about, is_large=True)
            self.is_large = True
        return self.made

    def named_query(self):
        """A query that WITH names: a tree, its name and its columns as (name, kind)."""
        name = f"w{len(self.named)}"
        kinds = [self.expressions.kind() for _ in range(self.rng.randint(2, 4))]
        columns = [(f"c{index}", kind) for index, kind in enumerate(kinds)]
        names = ", ".join(column for column, _ in columns)
        query = self.select(kinds, 2)
        advice = self.rng.choice(["", "", "", "MATERIALIZED ", "NOT MATERIALIZED "])
        return Node("named", [f"{name}({names}) AS {advice}(", query, ")"]), (name, columns)

    def query(self):
        """A query over them."""
        rng = self.rng
        self.aliases, self.named = 0, []
        self.large = self.made[0] if self.is_large else None
        before = []
        if rng.random() < 0.12:
            for _ in range(rng.randint(1, 2)):
                query, named = self.named_query()
                before.append(query)
                self.named.append(named)
        choice = rng.random()
        if choice < 0.12:
            query, width = self.set_operation(2), 2
        else:
            kinds = [self.expressions.kind() for _ in range(rng.randint(1, 4))]
            query, width = self.select(kinds, 3), len(kinds)
        if before:
            # Without a kind: neither the queries before nor the one after can stand alone.
            query = Node("with", ["WITH ", Node("names", before, ", "), " ", query])
        order = rng.random()
        if order < 0.45:
            return Query(query)
        positions = list(range(width))
        rng.shuffle(positions)
        if order < 0.65:
            positions = positions[: rng.randint(1, width)]
        keys = ", ".join(f"{position + 1}{rng.choice(['', ' DESC', ' ASC NULLS FIRST', ' DESC NULLS LAST'])}" for position in positions)
        # A limit only on rows in a total order: otherwise there is more than one answer.
        limit = f" LIMIT {rng.choice([0, 1, 3, 10])}" if len(positions) == width and rng.random() < 0.6 else ""
        if limit and rng.random() < 0.5:
            limit += f" OFFSET {rng.choice([0, 1, 4])}"
        root = Node("ordered", [query, Node("clause", [f" ORDER BY {keys}", Node("clause", [limit])])])
        return Query(root, tuple(positions))

    def alias(self):
        self.aliases += 1
        return f"x{self.aliases}"

    def source(self, depth, outer=None):
        """A table or a query as one, with an alias: a tree and its columns."""
        rng, alias = self.rng, self.alias()
        if depth > 0 and rng.random() < 0.2:
            kinds = [self.expressions.kind() for _ in range(rng.randint(2, 4))]
            columns = [(f"{alias}.c{index}", kind) for index, kind in enumerate(kinds)]
            names = ", ".join(f"c{index}" for index in range(len(kinds)))
            return Node("source", ["(", self.select(kinds, depth - 1), f") AS {alias}({names})"]), columns
        if self.named and rng.random() < 0.5:
            name, columns = rng.choice(self.named)
            return Node("source", [f"{name} AS {alias}"]), [(f"{alias}.{column}", kind) for column, kind in columns]
        table = self.large if self.large and rng.random() < 0.7 else rng.choice(self.made)
        if self.is_large and table is self.made[0]:
            # Once in a query: who joins it with itself waits for long.
            table, self.large = (table, None) if self.large else (self.made[1], None)
        columns = [(f"{alias}.{column.name}", column.kind) for column in table.columns]
        return Node("source", [f"{table.name} AS {alias}"]), columns

    def sources(self, depth, outer=None):
        """What follows FROM, and the scope that it makes."""
        rng = self.rng
        first, columns = self.source(depth)
        parts = [first]
        for _ in range(rng.choice([0, 0, 0, 1, 1, 2])):
            join = rng.choice(JOINS)
            if depth > 0 and rng.random() < 0.08:
                lateral, more = self.lateral(columns)
                parts.append(lateral)
                columns = columns + more
                continue
            source, more = self.source(depth - 1)
            if rng.random() < 0.1 and join in USING_JOINS and (using := self.using(columns, more)):
                parts.append(Node("clause", [f" {join} ", source, using]))
                columns = columns + more
                continue
            condition = self.join_condition(columns, more)
            if condition is None or rng.random() < 0.06:
                parts.append(Node("clause", [" CROSS JOIN ", source]))
                columns = columns + more
                continue
            parts.append(Node("clause", [f" {join} ", source, " ON ", condition]))
            if join not in ("SEMI JOIN", "ANTI JOIN"):
                columns = columns + more
        return Node("from", parts), Scope(columns, outer)

    def lateral(self, columns):
        """A query for each row of what is before: a tree and its columns."""
        rng, alias = self.rng, self.alias()
        kinds = [self.expressions.kind() for _ in range(rng.randint(1, 2))]
        sources, scope = self.sources(0, Scope(columns))
        where = Node("clause", [" WHERE ", self.condition(scope, Scope(columns), 1)])
        if rng.random() < 0.4:
            items = [self.aggregate(kind, Scope(scope.columns)) for kind in kinds]
        else:
            items = [self.plain.make(kind, Scope(scope.columns), 1) for kind in kinds]
        query = Node("query", ["SELECT ", Node("list", items, ", "), " FROM ", sources, where])
        names = ", ".join(f"c{index}" for index in range(len(kinds)))
        join, end = rng.choice([(" CROSS JOIN LATERAL (", ")"), (" LEFT JOIN LATERAL (", ")")])
        condition = " ON true" if "LEFT" in join else ""
        made = Node("clause", [join, query, f"{end} AS {alias}({names}){condition}"])
        return made, [(f"{alias}.c{index}", kind) for index, kind in enumerate(kinds)]

    def using(self, left, right):
        """USING with a name that exactly one table of each side has, of one kind; nothing if there is none."""
        names = lambda columns: [text.split(".")[1] for text, _ in columns]
        of_left, of_right = names(left), names(right)
        kinds = [{text.split(".")[1]: kind for text, kind in side} for side in (left, right)]
        common = [
            name for name in kinds[0]
            if of_left.count(name) == 1 and of_right.count(name) == 1 and kinds[0][name] == kinds[1][name] != "bool"
        ]
        return f" USING ({self.rng.choice(sorted(common))})" if common else None

    def join_condition(self, left, right):
        """A condition with at least one comparison of both sides; nothing if they have no columns of one kind."""
        rng = self.rng
        pairs = [(a, b) for a, kind in left for b, other in right if kind == other and kind != "bool"]
        if not pairs:
            return None
        parts = []
        for _ in range(rng.choice([1, 1, 1, 2])):
            one, other = rng.choice(pairs)
            operator = rng.choice(["=", "=", "=", "=", "IS NOT DISTINCT FROM", "<"])
            parts.append(self.plain.node("bool", [f"{one} {operator} {other}"]))
        if rng.random() < 0.25:
            parts.append(self.plain.make("bool", Scope(left + right), 1))
        return Node("list", parts, " AND ")

    def select(self, kinds, depth, outer=None):
        """A SELECT whose columns are of these kinds."""
        rng = self.rng
        sources, scope = self.sources(depth - 1, outer)
        where = Node("clause", [])
        if rng.random() < 0.5 or (outer and rng.random() < 0.8):
            conditions = [self.condition(scope, outer, depth) for _ in range(rng.randint(1, 2))]
            where = Node("clause", [" WHERE ", Node("list", conditions, " AND ")])
        if rng.random() < 0.35:
            return self.grouped(kinds, sources, where, scope, depth)
        items = []
        has_windows = rng.random() < self.windows_share
        self.windows.begin()
        for kind in kinds:
            window = self.windows.make(kind, scope) if has_windows and rng.random() < 0.8 else None
            items.append(window or self.expressions.make(kind, scope, depth - 1))
        distinct = Node("clause", [rng.choice(["", "", "", "", "", "DISTINCT "])])
        return Node("query", ["SELECT ", distinct, Node("list", items, ", "), " FROM ", sources, where])

    def condition(self, scope, outer, depth):
        """A condition, within a subquery mostly one that ties it to the query around it."""
        if outer and self.rng.random() < 0.75:
            pairs = [(a, b) for a, kind in scope.columns for b, other in outer.columns if kind == other]
            if pairs:
                one, other = self.rng.choice(pairs)
                operator = self.rng.choice(["=", "=", "=", "=", "<", "<>", "IS NOT DISTINCT FROM"])
                return self.expressions.node("bool", [f"({one} {operator} {other})"])
        return self.expressions.make("bool", scope, depth - 1)

    def grouped(self, kinds, sources, where, scope, depth):
        """A SELECT with GROUP BY, or with aggregates alone."""
        rng = self.rng
        keys = []
        for _ in range(rng.choice([0, 1, 1, 2, 2, 3])):
            kind = self.expressions.kind()
            keys.append((self.plain.make(kind, scope, rng.choice([0, 0, 1])), kind))
        keys = [(key, kind) for key, kind in keys if "." in key.text()]
        items, scope_of_keys = [], Scope([(key.text(), kind) for key, kind in keys])
        has_windows = rng.random() < self.windows_share / 2
        aggregate = lambda of: self.aggregate(of, scope)
        for kind in kinds:
            if has_windows and rng.random() < 0.6:
                items.append(self.windows.of_groups(kind, [key.text() for key, _ in keys], aggregate))
                continue
            known = scope_of_keys.of_kind(kind)
            if known and rng.random() < 0.6:
                items.append(self.plain.node(kind, [rng.choice(known)]))
            else:
                items.append(self.aggregate(kind, scope))
        parts = ["SELECT ", Node("list", items, ", "), " FROM ", sources, where]
        if keys:
            parts.append(Node("clause", [" GROUP BY ", self.grouping([key for key, _ in keys])]))
        if rng.random() < 0.25:
            having = self.plain.node("bool", ["(", self.aggregate("int", scope), rng.choice([" > ", " <= ", " <> "]), "1)"])
            parts.append(Node("clause", [" HAVING ", having]))
        return Node("query", parts)

    def grouping(self, keys):
        choice = self.rng.random()
        plain = Node("list", [Node("name", [key]) for key in keys], ", ")
        if choice < 0.75 or len(keys) < 2:
            return plain
        if choice < 0.83:
            return Node("name", ["ROLLUP (", plain, ")"])
        if choice < 0.9:
            return Node("name", ["CUBE (", plain, ")"])
        sets = [f"({keys[0].text()})", "()", f"({', '.join(key.text() for key in keys)})"]
        return Node("name", ["GROUPING SETS (", Node("list", [Node("name", [one]) for one in sets], ", "), ")"])

    def aggregate(self, kind, scope):
        """An aggregate with a result of a kind."""
        rng, make = self.rng, lambda of: self.plain.make(of, scope, 1)
        def node(*parts, is_filtered=False):
            return self.plain.node(kind, list(parts) + ([] if is_filtered else [self.filter(scope)]))

        if kind == "int" and rng.random() < 0.7:
            other = self.expressions.kind()
            return rng.choice([
                lambda: node("count(*)"),
                lambda: node("count(", make(other), ")"),
                lambda: node("count(DISTINCT ", make(other), ")"),
                lambda: node("sum(", make("int"), ")"),
                lambda: node("sum(DISTINCT ", make("int"), ")"),
                lambda: node("array_length(array_agg(", make(other), ")", self.filter(scope), ")", is_filtered=True),
            ])()
        # Of columns: a number that stands alone in ORDER BY may be meant as the place of one.
        columns = scope.of_kind(kind)
        if kind in ORDERED and columns and rng.random() < 0.15:
            value = rng.choice(columns)
            return node(f"{rng.choice(['first', 'last'])}({value} ORDER BY {value}{rng.choice(['', ' DESC', ' NULLS FIRST'])})")
        if kind in ORDERED and columns and rng.random() < 0.1:
            value = rng.choice(columns)
            return node("quantile_disc(", value, f", {rng.choice(QUANTILES)})")
        if kind == "dec" and rng.random() < 0.6:
            return node("sum(", self.plain.leaf("dec", scope), ")")
        if kind == "dbl" and rng.random() < 0.7:
            of = rng.choice(["int", "dbl"])
            if rng.random() < 0.25:
                one, other = (self.plain.leaf(rng.choice(["int", "dbl"]), scope) for _ in range(2))
                return node(f"{rng.choice(['covar_pop', 'covar_samp', 'corr'])}(", one, ", ", other, ")")
            if rng.random() < 0.2:
                return node("quantile_cont(", self.plain.leaf("dbl", scope), f", {rng.choice(QUANTILES)})")
            function = rng.choice(["sum", "avg", "avg", "stddev", "var_pop", "median"])
            if of == "int" and function in ("sum", "median"):
                function = "avg"
            return node(f"{function}(", self.plain.leaf(of, scope), ")")
        if kind == "bool" and rng.random() < 0.7:
            return node(rng.choice(["bool_and(", "bool_or("]), make("bool"), ")")
        if kind == "str" and rng.random() < 0.4:
            of = rng.choice(["str", "str", "int", "date"])
            value = rng.choice(scope.of_kind(of) or [self.plain.constant("str").text()])
            if "." in value and rng.random() < 0.35:
                # Nulls as text are told apart by only one engine.
                listed = f"array_agg({value} ORDER BY {value}{rng.choice(['', ' DESC'])}) FILTER (WHERE {value} IS NOT NULL)"
                return self.plain.node(kind, [f"array_to_string({listed}, ',')"])
            value = value if of == "str" else f"CAST({value} AS VARCHAR)"
            return node(f"string_agg({value}, ',' ORDER BY {value})")
        if kind == "bool":
            return self.plain.node("bool", ["(count(*) > 2)"])
        return node(rng.choice(["min(", "max("]), make(kind), ")")

    def filter(self, scope):
        if self.rng.random() < 0.85:
            return Node("clause", [])
        return Node("clause", [" FILTER (WHERE ", self.plain.make("bool", scope, 1), ")"])

    def subquery(self, kind, scope, depth):
        """An expression with a query inside."""
        rng = self.rng
        depth = min(depth, 1)
        outer = scope if rng.random() < 0.5 else None
        if kind == "bool":
            choice = rng.random()
            if choice < 0.4:
                of = rng.choice([kind for _, kind in scope.columns] or ["int"])
                negation = rng.choice(["", " NOT"])
                inner = self.select([of], depth, outer)
                return self.expressions.node("bool", ["(", self.plain.leaf(of, scope), f"{negation} IN (", inner, "))"])
            negation = rng.choice(["", "NOT "])
            return self.expressions.node("bool", [f"({negation}EXISTS (", self.select(["int"], depth, outer), "))"])
        sources, inner = self.sources(0, outer)
        where = Node("clause", [])
        if outer or rng.random() < 0.5:
            where = Node("clause", [" WHERE ", self.condition(inner, outer, 1)])
        query = Node("query", ["SELECT ", self.aggregate(kind, Scope(inner.columns)), " FROM ", sources, where])
        return self.expressions.node(kind, ["(", query, ")"])

    def set_operation(self, depth):
        """Queries joined by UNION and the like."""
        kinds = [self.expressions.kind() for _ in range(2)]
        node = self.select(kinds, depth)
        for _ in range(self.rng.randint(1, 2)):
            operator = self.rng.choice(["UNION", "UNION ALL", "INTERSECT", "EXCEPT", "UNION ALL", "INTERSECT ALL", "EXCEPT ALL"])
            node = Node("query", ["(", node, f") {operator} (", self.select(kinds, depth), ")"])
        return node
