"""Suites: one module for each, whose `SUITE` is found here. A new one needs no other change."""

from __future__ import annotations

import importlib
import pkgutil

from .base import Suite

__all__ = ["SUITES", "Suite", "discover", "find"]


def discover() -> dict[str, Suite]:
    """Import every module of this folder, for its `SUITE`; by name."""
    names = [found.name for found in pkgutil.iter_modules(__path__) if found.name != "base"]
    suites: list[Suite] = [importlib.import_module(f".{name}", __name__).SUITE for name in names]
    return {suite.name: suite for suite in suites}


#: Name -> suite.
SUITES = discover()


def find(name: str) -> Suite:
    """Find a suite by its name, as a record has it.

    Raises
    ------
    ValueError
    """
    if name not in SUITES:
        raise ValueError(f"unknown suite {name!r}: there are {', '.join(SUITES)}")
    return SUITES[name]
