"""Random expressions of a kind over the columns in scope, as trees.

Only what both engines must agree on: no division by columns that may be zero, no sums beyond the ends of
types, no names of functions that only one of them has.
"""

from differential_tables import TYPES, literal
from differential_tree import Node

# The simplest value of a kind, to which a case that differs is cut down.
SIMPLE = {
    "int": "1",
    "big": "CAST(1 AS BIGINT)",
    "dec": "CAST(1 AS DECIMAL(9,2))",
    "dbl": "CAST(1 AS DOUBLE)",
    "wild": "CAST(1 AS DOUBLE)",
    "str": "'a'",
    "date": "DATE '2020-01-01'",
    "ts": "TIMESTAMP '2020-01-01 00:00:00'",
    "bool": "true",
}

COMPARISONS = ["=", "<>", "<", "<=", ">", ">=", "IS DISTINCT FROM", "IS NOT DISTINCT FROM"]

# Templates by the kind of their result; `{kind}` stands for an expression, `{=kind}` for a constant.
TEMPLATES = {
    "int": [
        "({int} + {=int})", "({int} - {int})", "(- {int})", "abs({int})", "({int} % 7)", "({int} / 3)",
        "length({str})", "CAST({bool} AS INTEGER)", "strpos({str}, {=str})", "CAST(extract(year FROM {date}) AS INTEGER)",
        "CAST(extract(month FROM {ts}) AS INTEGER)", "CAST(extract(dow FROM {date}) AS INTEGER)",
        "CAST(extract(doy FROM {date}) AS INTEGER)", "CAST(extract(hour FROM {ts}) AS INTEGER)",
        "CAST(extract(quarter FROM {date}) AS INTEGER)", "CAST(extract(week FROM {date}) AS INTEGER)",
        "CAST(({date} - {date}) AS INTEGER)", "TRY_CAST({=str} AS INTEGER)", "CAST({dec} AS INTEGER)",
        "CAST({dbl} AS INTEGER)", "ascii({str})", "sign({int})", "greatest({int}, {int})", "least({int}, {=int})",
        "({int} & 7)", "({int} | 5)", "mod({int}, 5)", "({=int} * {int})",
    ],
    "big": ["greatest({big}, {big})", "CAST({int} AS BIGINT)", "least({big}, {=int})"],
    "dec": [
        "({dec} + {=dec})", "({dec} - {dec})", "(- {dec})", "abs({dec})", "({=dec} * {dec})", "({int} * {=dec})",
        "CAST({int} AS DECIMAL(12,3))", "round({dec}, 1)", "CAST({dec} AS DECIMAL(12,1))", "greatest({dec}, {=dec})",
        "CAST({dbl} AS DECIMAL(12,2))", "CAST('12.345' AS DECIMAL(9,2))", "({dec} + {int})", "floor({dec})", "ceil({dec})",
    ],
    "dbl": [
        "({dbl} + {=dbl})", "({dbl} - {dbl})", "(- {dbl})", "abs({dbl})", "({dbl} * 2)", "({dbl} / 4)", "({dbl} + {int})",
        "CAST({int} AS DOUBLE)", "CAST({dec} AS DOUBLE)", "floor({dbl})", "ceil({dbl})", "round({dbl})",
        "sqrt(abs({dbl}))", "power({dbl}, 2)", "({dbl} + {=dec})", "least({dbl}, {=dbl})", "trunc({dbl})",
    ],
    "wild": ["greatest({wild}, {dbl})", "(- {wild})", "abs({wild})"],
    "str": [
        "({str} || {str})", "upper({str})", "lower({str})", "substr({str}, 2)", "substr({str}, 1, 2)", "replace({str}, 'a', 'xy')",
        "trim({str})", "left({str}, 2)", "right({str}, 2)", "CAST({int} AS VARCHAR)", "CAST({dec} AS VARCHAR)", "CAST({date} AS VARCHAR)",
        "CAST({bool} AS VARCHAR)", "lpad({str}, 5, '*')", "rpad({str}, 3, '.')", "reverse({str})", "concat({str}, '-', {str})",
        "repeat({str}, 2)", "greatest({str}, {str})", "split_part({str}, 'b', 1)", "CAST({big} AS VARCHAR)", "ltrim({str})",
        "translate({str}, 'ab', 'xy')", "concat_ws('/', {str}, {str})",
    ],
    "date": [
        "CAST({date} + INTERVAL '3' DAY AS DATE)", "CAST({date} - INTERVAL '1' MONTH AS DATE)", "CAST({ts} AS DATE)",
        "CAST(date_trunc('month', {date}) AS DATE)", "CAST({date} + INTERVAL '1' YEAR AS DATE)", "({date} + {=int})", "greatest({date}, {date})",
    ],
    "ts": [
        "({ts} + INTERVAL '90' MINUTE)", "({ts} - INTERVAL '2' DAY)", "CAST({date} AS TIMESTAMP)", "date_trunc('hour', {ts})",
        "date_trunc('year', {ts})", "({ts} + INTERVAL '1' MONTH)", "date_trunc('week', {ts})", "least({ts}, {ts})",
    ],
    "bool": [
        "({bool} AND {bool})", "({bool} OR {bool})", "(NOT {bool})", "({str} LIKE 'a%')", "({str} LIKE '%b%')", "({str} NOT LIKE '_')",
        "({str} ILIKE 'A%B')", "({int} BETWEEN {int} AND {int})", "({dec} NOT BETWEEN {=dec} AND {=dec})", "({int} IN (1, 2, {=int}))",
        "({str} IN ('a', 'ab', {=str}))", "({str} NOT IN ('a', NULL))", "({bool} IS TRUE)", "({bool} IS NOT FALSE)", "starts_with({str}, 'a')",
        "({int} NOT IN (0, {int}))", "({date} BETWEEN DATE '2020-01-30' AND {date})", "({bool} IS NOT UNKNOWN)",
        "({dbl} > {=dec})", "({int} < {=dec})", "({dec} = {int})", "({wild} < {=dec})", "({date} < {ts})", "({dbl} = {int})", "({big} > {dbl})",
        "({wild} <> {=int})", "({str} LIKE {str})", "(CAST({int} AS VARCHAR) = {str})", "({big} > {=dec})",
    ],
}


class Scope:
    """Columns that expressions may use: (text, kind)."""

    def __init__(self, columns, outer=None):
        self.columns, self.outer = columns, outer

    def of_kind(self, kind):
        return [text for text, column_kind in self.columns if column_kind == kind]


class Expressions:
    """Makes expressions. `subquery`, if there is one, makes those with a query inside."""

    def __init__(self, rng, subquery=None):
        self.rng, self.subquery = rng, subquery

    def kind(self):
        return self.rng.choice(list(TYPES))

    def node(self, kind, parts):
        return Node(kind, parts, literal=SIMPLE[kind])

    def constant(self, kind):
        if self.rng.random() < 0.05:
            return self.node(kind, [f"CAST(NULL AS {TYPES[kind][-1]})"])
        return self.node(kind, [literal(self.rng, kind)])

    def leaf(self, kind, scope):
        names = scope.of_kind(kind)
        if scope.outer and self.rng.random() < 0.3:
            names = scope.outer.of_kind(kind) or names
        if names and self.rng.random() < 0.85:
            return self.node(kind, [self.rng.choice(names)])
        return self.constant(kind)

    def make(self, kind, scope, depth):
        """An expression of a kind, so many levels deep at most."""
        rng = self.rng
        if depth <= 0 or rng.random() < 0.25:
            if kind != "bool":
                return self.leaf(kind, scope)
            return self.comparison(scope, 0)
        choice = rng.random()
        if self.subquery and choice < 0.12:
            return self.subquery(kind, scope, depth - 1)
        if choice < 0.2:
            return self.case(kind, scope, depth - 1)
        if choice < 0.26:
            return self.node(kind, ["coalesce(", self.make(kind, scope, depth - 1), ", ", self.leaf(kind, scope), ")"])
        if choice < 0.3:
            return self.node(kind, ["nullif(", self.make(kind, scope, depth - 1), ", ", self.leaf(kind, scope), ")"])
        if kind == "bool" and choice < 0.65:
            return self.comparison(scope, depth - 1)
        return self.template(kind, rng.choice(TEMPLATES[kind]), scope, depth - 1)

    def comparison(self, scope, depth):
        rng = self.rng
        kind = self.kind()
        if rng.random() < 0.15:
            test = rng.choice([" IS NULL)", " IS NOT NULL)"])
            return self.node("bool", ["(", self.make(kind, scope, depth) if kind != "bool" else self.leaf(kind, scope), test])
        if kind == "bool":
            return self.leaf("bool", scope)
        return self.node(
            "bool", ["(", self.make(kind, scope, depth), f" {rng.choice(COMPARISONS)} ", self.leaf(kind, scope), ")"]
        )

    def case(self, kind, scope, depth):
        parts = ["(CASE"]
        if self.rng.random() < 0.25:
            parts += [" ", self.leaf("int", scope), " WHEN ", self.leaf("int", scope), " THEN ", self.make(kind, scope, depth)]
        else:
            for _ in range(self.rng.randint(1, 2)):
                parts += [" WHEN ", self.make("bool", scope, depth), " THEN ", self.make(kind, scope, depth)]
        if self.rng.random() < 0.7:
            parts += [Node("clause", [" ELSE ", self.make(kind, scope, depth)])]
        return self.node(kind, parts + [" END)"])

    def template(self, kind, template, scope, depth):
        parts = []
        while "{" in template:
            before, _, rest = template.partition("{")
            name, _, template = rest.partition("}")
            parts.append(before)
            if name.startswith("="):
                parts.append(self.constant(name[1:]))
            else:
                # One deep operand is enough.
                parts.append(self.make(name, scope, depth))
                depth = 0
        return self.node(kind, parts + [template])
