"""Contenders: implementations that a suite times, and those that are missing."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from ...common.dtypes import BFLOAT16
from ...testing import timing


@dataclass(frozen=True)
class Runner:
    """A contender made ready for one cell.

    Attributes
    ----------
    output : function
        Computes with the first set of weights; returns an array once the device is done.
    timed : function or timing.Timed
        As `timing.microseconds` takes it.
    captured : bool
        Whether it is replayed from a CUDA graph.
    choice : str
        Kernel that `auto` chose.
    """

    output: Callable[[], Any]
    timed: timing.Call | timing.Timed
    captured: bool = True
    choice: str = ""


@dataclass(frozen=True)
class Contender:
    """One implementation that is timed or checked.

    Attributes
    ----------
    name : str
    make : function
        Makes it ready for a cell's inputs, which are the suite's; may raise, which only costs it
        that cell.
    computes : str
        What its result is, as `Expected.of` takes it.
    family : str
        Family of a variant of ours, empty for all others.
    dtype : numpy.dtype
        Type of its inputs and of its result.
    """

    name: str
    make: Callable[[Any], Runner]
    computes: str = "swiglu"
    family: str = ""
    dtype: Any = BFLOAT16


@dataclass(frozen=True)
class Found:
    """Contenders that are here, and why others are missing."""

    contenders: list[Contender] = field(default_factory=list)
    missing: dict[str, str] = field(default_factory=dict)


def absent(names: list[str], reason: str) -> Found:
    """Tell one reason why all of these are missing."""
    return Found([], dict.fromkeys(names, reason))


def joined(parts: Iterable[Found]) -> Found:
    """Join what several modules have found."""
    found = Found()
    for part in parts:
        found.contenders.extend(part.contenders)
        found.missing.update(part.missing)
    return found
