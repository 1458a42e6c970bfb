"""Targets of the suite `quick`: those of `paper`, on a few of its cells."""

from .paper import targets

__all__ = ["targets"]
