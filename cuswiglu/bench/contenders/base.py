"""Contenders: implementations that a suite times, and those that are missing."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from ...common.dtypes import BFLOAT16
from ...testing import timing
from ..cells import Cell


class InapplicableError(ValueError):
    """A contender is not made for a cell, in which it does not take part then."""


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
        that cell. After an `InapplicableError` nothing is told of it there.
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


def limited(found: Found, takes: Callable[[Cell], bool]) -> Found:
    """Let contenders take part in some of the cells only."""

    def make(contender: Contender, inputs: Any) -> Runner:
        if not takes(inputs.cell):
            raise InapplicableError(f"{contender.name} takes no part in {inputs.cell}")
        return contender.make(inputs)

    contenders = [replace(one, make=functools.partial(make, one)) for one in found.contenders]
    return replace(found, contenders=contenders)


def joined(parts: Iterable[Found]) -> Found:
    """Join what several modules have found."""
    found = Found()
    for part in parts:
        found.contenders.extend(part.contenders)
        found.missing.update(part.missing)
    return found
