"""The call stack: how far up the user's own call is."""

from __future__ import annotations

import sys

_PACKAGE = __name__.partition(".")[0]


def callers_level() -> int:
    """How far up the stack the user's own call is."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals["__name__"].partition(".")[0] == _PACKAGE:
        level, frame = level + 1, frame.f_back
    return level
