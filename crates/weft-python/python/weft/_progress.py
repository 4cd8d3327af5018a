"""A progress bar for statements that take long, in a terminal and in Jupyter."""

from __future__ import annotations

import sys
import time
from typing import Any

#: Seconds after which a bar is shown, and between two looks.
_SHOWN_AFTER = 2.0
_EVERY = 0.2
_WIDTH = 40


def _in_notebook() -> bool:
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return shell is not None and hasattr(shell, "kernel")


class Progress:
    """The bar of one statement. What it is called with is units done, units known so far, and rows."""

    def __init__(self) -> None:
        self.begun = time.monotonic()
        self.due = self.begun + _SHOWN_AFTER
        self.display: Any = None
        self.is_shown = False

    def __call__(self, done: int, total: int, rows: int) -> None:
        now = time.monotonic()
        if now < self.due:
            return
        self.due = now + _EVERY
        share = min(done / total, 1.0) if total else 0.0
        filled = int(share * _WIDTH)
        text = f"{share:4.0%} {'━' * filled}{'╌' * (_WIDTH - filled)} {now - self.begun:.0f} s, {rows:,} rows"
        if _in_notebook():
            from IPython.display import display

            if self.display is None:
                self.display = display({"text/plain": text}, raw=True, display_id=True)
            else:
                self.display.update({"text/plain": text}, raw=True)
        else:
            sys.stderr.write(f"\r{text}")
            sys.stderr.flush()
        self.is_shown = True

    def end(self) -> None:
        """Removes the bar from a terminal."""
        if self.is_shown and self.display is None:
            sys.stderr.write("\r\x1b[2K")
            sys.stderr.flush()
        self.is_shown = False


def progress_for(wanted: bool | None) -> Progress | None:
    """A bar if it is wanted; if that is left open, where somebody sees it."""
    if wanted is None:
        wanted = _in_notebook() or (sys.stderr is not None and sys.stderr.isatty())
    return Progress() if wanted else None
