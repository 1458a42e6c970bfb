"""Targets that the project set itself: one module for each suite, named after it."""

from __future__ import annotations

import importlib
import pkgutil

from cuswiglu.bench.record import Record

from .base import Target

__all__ = ["Target", "targets"]

_MODULES = {found.name for found in pkgutil.iter_modules(__path__)}


def targets(record: Record) -> list[Target]:
    """List every target that a record can answer; none of a suite that has no targets.

    Targets are for all cells of a suite: figures on fewer are partial.
    """
    name = record.suite.replace("-", "_")
    if name == "base" or name not in _MODULES:
        return []
    module = importlib.import_module(f".{name}", __name__)
    found: list[Target] = module.targets(record)
    return found
