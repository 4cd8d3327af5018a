"""Random window functions: all functions and frames, over rows in a total order or among peers."""

from differential_tree import Node

# Frames of rows, for which the order has to be total.
OF_ROWS = [
    " ROWS BETWEEN 2 PRECEDING AND CURRENT ROW",
    " ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW",
    " ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING",
    " ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING",
    " ROWS BETWEEN CURRENT ROW AND 3 FOLLOWING",
    " ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING",
    " ROWS BETWEEN 1 FOLLOWING AND 2 FOLLOWING",
    " ROWS BETWEEN 3 PRECEDING AND 1 PRECEDING",
    " ROWS BETWEEN 1 PRECEDING AND 100 FOLLOWING",
    " ROWS BETWEEN 2 FOLLOWING AND UNBOUNDED FOLLOWING",
]

# What frames leave out.
EXCLUSIONS = ["", "", "", "", "", " EXCLUDE CURRENT ROW", " EXCLUDE GROUP", " EXCLUDE TIES", " EXCLUDE NO OTHERS"]

# Frames whose ends are the same for peers.
OF_PEERS = [
    "",
    " RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW",
    " RANGE BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING",
    " RANGE BETWEEN CURRENT ROW AND CURRENT ROW",
    " GROUPS BETWEEN 1 PRECEDING AND CURRENT ROW",
    " GROUPS BETWEEN 2 PRECEDING AND 1 FOLLOWING",
    " GROUPS BETWEEN 1 FOLLOWING AND 3 FOLLOWING",
    " GROUPS BETWEEN UNBOUNDED PRECEDING AND 2 PRECEDING",
    " GROUPS BETWEEN 1 FOLLOWING AND UNBOUNDED FOLLOWING",
]

# Frames by the distance of a key of a kind.
DISTANCES = {
    "int": ["0", "1", "7", "100"],
    "dec": ["0.5", "2.0", "30.0"],
    "dbl": ["0.5", "3.0", "1000.0"],
    "date": ["INTERVAL '1 day'", "INTERVAL '40 days'", "INTERVAL '2 months'"],
    "ts": ["INTERVAL '90 minutes'", "INTERVAL '3 days'", "INTERVAL '1 month'"],
}
OF_RANGES = [
    " RANGE BETWEEN {0} PRECEDING AND {1} FOLLOWING",
    " RANGE BETWEEN {0} PRECEDING AND CURRENT ROW",
    " RANGE BETWEEN UNBOUNDED PRECEDING AND {0} PRECEDING",
    " RANGE BETWEEN {0} FOLLOWING AND UNBOUNDED FOLLOWING",
    " RANGE BETWEEN CURRENT ROW AND {1} FOLLOWING",
]

DIRECTIONS = ["", " DESC", " NULLS FIRST", " DESC NULLS LAST"]


class Windows:
    """Makes window functions over the columns in scope."""

    def __init__(self, rng, plain):
        self.rng, self.plain = rng, plain
        # Windows of the query at hand: several functions share one.
        self.known = []

    def begin(self):
        """Begins with another query."""
        self.known = []

    def make(self, kind, scope):
        """A window function with a result of a kind; nothing if there is none."""
        rng = self.rng
        if not scope.columns:
            return None
        total = self.total(scope)
        if total and rng.random() < 0.6:
            return self.of_rows(kind, scope, total)
        return self.of_peers(kind, scope)

    def total(self, scope):
        """Columns that order the rows of all tables in scope; nothing if some rows have none."""
        keys = [text for text, _ in scope.columns if text.endswith(".id")]
        sources = {text.split(".")[0] for text, _ in scope.columns}
        return ", ".join(keys) if len(keys) == len(sources) else None

    def window(self, scope, total):
        """PARTITION BY and ORDER BY."""
        rng = self.rng
        same = [window for is_total, window in self.known if is_total == bool(total)]
        if same and rng.random() < 0.5:
            return rng.choice(same)
        columns = [text for text, _ in scope.columns]
        partition = ", ".join(rng.sample(columns, min(len(columns), rng.choice([0, 1, 1, 1, 2]))))
        keys = [text + rng.choice(DIRECTIONS) for text in rng.sample(columns, min(len(columns), rng.choice([0, 1, 1, 2])))]
        if total:
            keys.append(total)
        window = (f"PARTITION BY {partition} " if partition else "", f"ORDER BY {', '.join(keys)}" if keys else "")
        self.known.append((bool(total), window))
        return window

    def over(self, window, frame):
        partition, order = window
        frame = [Node("clause", [frame]), Node("clause", [self.rng.choice(EXCLUSIONS) if frame else ""])]
        return Node("name", [" OVER (", Node("clause", [partition]), order, Node("clause", frame), ")"])

    def filter(self, scope):
        if self.rng.random() < 0.85:
            return Node("clause", [])
        return Node("clause", [" FILTER (WHERE ", self.plain.make("bool", scope, 0), ")"])

    def of_rows(self, kind, scope, total):
        rng, window = self.rng, self.window(scope, total)
        frame = rng.choice(OF_ROWS + OF_PEERS)
        node = lambda *parts: self.plain.node(kind, list(parts))
        leaf = lambda of: self.plain.leaf(of, scope)
        choice = rng.random()
        if kind == "int" and choice < 0.2:
            number = rng.choice(["row_number()", "rank()", "dense_rank()", f"ntile({rng.choice([1, 2, 3, 7, 50])})"])
            return node(number, self.over(window, ""))
        if choice < 0.45:
            function = rng.choice(["lag", "lead"])
            distance = rng.choice(["", "", ", 1", ", 2", ", 7", ", 0"])
            if distance and rng.random() < 0.3:
                distance += f", {self.plain.constant(kind).text()}"
            nulls = rng.choice(["", "", " IGNORE NULLS"])
            if rng.random() < 0.3:
                # Rows say themselves how far away the other one is, and what there is without it.
                default = [", ", leaf(kind)] if rng.random() < 0.5 else []
                return node(f"{function}(", leaf(kind), ", ", leaf("int"), *default, f"{nulls})", self.over(window, ""))
            return node(f"{function}(", leaf(kind), f"{distance}{nulls})", self.over(window, ""))
        if choice < 0.7:
            function, more = rng.choice([
                ("first_value", ""), ("last_value", ""), ("nth_value", ", 1"), ("nth_value", ", 2"), ("nth_value", ", 5"),
            ])
            nulls = rng.choice(["", "", " IGNORE NULLS"])
            return node(f"{function}(", leaf(kind), f"{more}{nulls})", self.over(window, frame))
        return self.aggregate(kind, scope, window, frame)

    def of_peers(self, kind, scope):
        rng = self.rng
        columns = [column for column in scope.columns if column[1] in DISTANCES]
        if columns and rng.random() < 0.35:
            key, of = rng.choice(columns)
            distances = DISTANCES[of]
            partition = rng.choice(["", "", f"PARTITION BY {rng.choice(scope.columns)[0]} "])
            frame = rng.choice(OF_RANGES).format(rng.choice(distances), rng.choice(distances))
            return self.aggregate(kind, scope, (partition, f"ORDER BY {key}{rng.choice(DIRECTIONS)}"), frame)
        window = self.window(scope, None)
        frame = rng.choice(OF_PEERS) if window[1] else rng.choice(["", OF_ROWS[2]])
        if kind == "int" and rng.random() < 0.4:
            return self.plain.node(kind, [rng.choice(["rank()", "dense_rank()"]), self.over(window, "")])
        if kind == "dbl" and rng.random() < 0.4:
            return self.plain.node(kind, [rng.choice(["percent_rank()", "cume_dist()"]), self.over(window, "")])
        return self.aggregate(kind, scope, window, frame)

    def aggregate(self, kind, scope, window, frame):
        """An aggregate whose result does not depend on the order of peers."""
        rng = self.rng
        leaf = lambda of: self.plain.leaf(of, scope)
        rest = lambda: [self.filter(scope), self.over(window, frame)]
        node = lambda *parts: self.plain.node(kind, list(parts) + rest())
        if kind == "int" and rng.random() < 0.7:
            return rng.choice([
                lambda: node("count(*)"),
                lambda: node("count(", leaf(rng.choice(["int", "str", "dbl"])), ")"),
                lambda: node("sum(", leaf("int"), ")"),
            ])()
        if kind == "dec" and rng.random() < 0.6:
            return node("sum(", leaf("dec"), ")")
        if kind == "dbl" and rng.random() < 0.6:
            function, of = rng.choice([("avg", "int"), ("avg", "dbl"), ("sum", "dbl")])
            return node(f"{function}(", leaf(of), ")")
        if kind == "bool":
            return node(rng.choice(["bool_and(", "bool_or("]), leaf(kind), ")")
        return node(rng.choice(["min(", "max("]), leaf(kind), ")")

    def of_groups(self, kind, keys, aggregate):
        """A window function over the groups of a query; `aggregate` makes an aggregate of a kind."""
        rng = self.rng
        partition = f"PARTITION BY {rng.choice(keys)} " if keys and rng.random() < 0.4 else ""
        order = f"ORDER BY {aggregate('int').text()}{rng.choice(DIRECTIONS)}"
        if kind == "int" and rng.random() < 0.5:
            return self.plain.node(kind, [rng.choice(["rank()", "dense_rank()"]), self.over((partition, order), "")])
        function = "sum(" if kind == "int" else rng.choice(["min(", "max("])
        if kind == "bool":
            function = rng.choice(["bool_and(", "bool_or("])
        window = (partition, rng.choice(["", order]))
        frame = rng.choice(OF_PEERS) if window[1] else ""
        return self.plain.node(kind, [function, aggregate(kind), ")", self.over(window, frame)])
