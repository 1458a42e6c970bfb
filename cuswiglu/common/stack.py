"""Stack levels for warnings, which should point at the user's own line."""

from __future__ import annotations

import sys

_PACKAGE = __name__.partition(".")[0]


def callers_level() -> int:
    """Return the `stacklevel` of the nearest caller outside this package, for `warnings.warn`."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals["__name__"].partition(".")[0] == _PACKAGE:
        level, frame = level + 1, frame.f_back
    return level
