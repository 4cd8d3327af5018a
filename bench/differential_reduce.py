"""Makes a case that differs smaller: first its query, as a tree, then its tables."""

from differential_tree import Node


def reduce(case, kind, text, tries):
    """The smallest case found that is still wrong in the same way, and what is wrong with it.

    Runs at most `tries` cases.
    """
    case, text, tries = reduce_tables(case, kind, text, tries)
    case, text, tries = reduce_query(case, kind, text, tries)
    case, text, _ = reduce_tables(case, kind, text, tries)
    return case, text


def attempt(case, kind):
    """What is wrong with a case, if it is wrong in this way."""
    verdict = case.run()
    return verdict[1] if verdict and verdict[0] == kind else None


def reduce_query(case, kind, text, tries):
    changed = True
    while changed and tries > 0:
        changed = False
        for root in variants(case.query.root):
            if tries <= 0:
                break
            smaller = case.with_query(case.query.with_root(root))
            tries -= 1
            found = attempt(smaller, kind)
            if found:
                case, text, changed = smaller, found, True
                break
    return case, text, tries


def reduce_tables(case, kind, text, tries):
    """Leaves out halves of the rows, quarters, and so on."""
    for index in range(len(case.tables)):
        size = (len(case.tables[index].rows) + 1) // 2
        while size > 0 and tries > 0:
            start = 0
            while start < len(case.tables[index].rows) and tries > 0:
                table = case.tables[index]
                rows = table.rows[:start] + table.rows[start + size :]
                tables = list(case.tables)
                tables[index] = table.with_rows(rows)
                smaller = case.with_tables(tables)
                tries -= 1
                found = attempt(smaller, kind)
                if found:
                    case, text = smaller, found
                else:
                    start += size
            size //= 2
    return case, text, tries


def variants(node):
    """Trees that are a bit smaller, the smallest first."""
    if node.kind == "list" and len(node.parts) > 1:
        for index in range(len(node.parts)):
            yield node.with_parts(node.parts[:index] + node.parts[index + 1 :])
    for index, part in enumerate(node.parts):
        if not isinstance(part, Node):
            continue
        for smaller in replacements(part):
            yield node.with_parts(node.parts[:index] + [smaller] + node.parts[index + 1 :])
    for index, part in enumerate(node.parts):
        if isinstance(part, Node):
            for smaller in variants(part):
                yield node.with_parts(node.parts[:index] + [smaller] + node.parts[index + 1 :])


def replacements(node):
    """What may stand for a node: nothing, a part of the same kind, NULL."""
    if node.kind == "clause":
        yield Node("clause", [])
    elif node.kind not in ("list", "item", "name"):
        yield from (inner for inner in node.descendants() if inner.kind == node.kind)
        if node.literal and node.text() != node.literal:
            yield Node(node.kind, [node.literal], literal=node.literal)
