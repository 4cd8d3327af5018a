"""Text as a tree, so that a test can make it smaller."""


class Node:
    """Parts, strings and nodes, of a kind.

    Kinds of values (`int`, `str`, …) and `query` may be replaced by a part of the same kind, a `clause` by
    nothing, and a `list` may lose elements. `literal` is the simplest value of the kind.
    """

    __slots__ = ("kind", "parts", "separator", "literal")

    def __init__(self, kind, parts, separator="", literal=None):
        self.kind, self.parts, self.separator, self.literal = kind, parts, separator, literal

    def text(self):
        texts = [part if isinstance(part, str) else part.text() for part in self.parts]
        return self.separator.join(text for text in texts if text)

    def with_parts(self, parts):
        return Node(self.kind, parts, self.separator, self.literal)

    def descendants(self):
        """All nodes below, the outermost first."""
        level = [part for part in self.parts if isinstance(part, Node)]
        while level:
            yield from level
            level = [part for node in level for part in node.parts if isinstance(part, Node)]
