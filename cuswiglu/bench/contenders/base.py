"""What a contender is."""

from __future__ import annotations

from collections.abc import Callable
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
        Computes with the first set of weights; returns a CuPy array once the GPU is done.
    timed : function or timing.Timed
        As `timing.microseconds` takes it.
    captured : bool
        Whether it is replayed from a CUDA graph.
    choice : str
        The kernel that `auto` chose.
    """

    output: Callable[[], Any]
    timed: timing.Contender | timing.Timed
    captured: bool = True
    choice: str = ""


@dataclass(frozen=True)
class Contender:
    """Somebody who takes part in a suite.

    Attributes
    ----------
    name : str
    make : function
        Makes it ready for a cell's inputs, which are the suite's; may raise, which only costs it
        that cell.
    computes : str
        What its result is, as `fp64.Expected.of` takes it.
    family : str
        Of an instance of ours.
    dtype : numpy.dtype
        Of its inputs and of its result.
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
    """All of these are missing for one reason."""
    return Found([], dict.fromkeys(names, reason))
