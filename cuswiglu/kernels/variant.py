"""Variants: a compiled kernel, its limits and entry points, and what is asked of every kind."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, TypeVar

from ..problem import EntryPoint, Layout, Problem
from .estimate import Rates
from .launch_shape import LaunchShape, ResidentClusters
from .split import Split
from .tile_columns import Cut

#: Families for few tokens, of gate and up and of one weight.
DECODE_FAMILIES = ("decode", "decode-plain")
PLAIN_FAMILIES = ("plain", "decode-plain")

_Kind = TypeVar("_Kind", bound="Variant")


@dataclass(frozen=True)
class Estimate:
    """Estimate of a launch, by the cost model.

    Attributes
    ----------
    kernel : Variant
    tiles : int
        Number of output tiles.
    waves : float
        Full tiles that the work of the busiest cluster amounts to.
    evenness : float
        Share of all clusters' time that goes into the result: 1 where every wave is full.
    us : float
        Microseconds of a launch.
    rows : Cut
        How M is cut into tiles.
    split : Split or None
        How a decode kernel's work is cut.
    """

    kernel: Variant
    tiles: int
    waves: float
    evenness: float
    us: float
    rows: Cut
    split: Split | None = None


@dataclass(frozen=True)
class Variant(ABC):
    """A compiled kernel, as `TileVariant`, `SwappedVariant`, `ResidentVariant` or `DecodeVariant`.

    Attributes
    ----------
    name : str
        family_schedule_tile_cluster, or family_tokens.
    family : str
    block_k : int
        A TMA box along K (elements).
    threads : int
        Per CTA.
    n_multiple, k_multiple : int
        N and K must be multiples of these (elements).
    alignment_bytes : int
        Of every base address and row stride.
    entries : tuple of EntryPoint
    arguments : tuple of (str, str)
        Name and kind of every argument of an entry point, in order; kinds are "tensor_map",
        "pointer", "int32", "int64" and "float32".
    registers : int
        A thread at entry.
    cubin, sha256 : str
        The file's path, and the hash of its content.

    Examples
    --------
    >>> import cuswiglu
    >>> kernel = next(one for one in cuswiglu.variants() if one.family == "dual")
    >>> kernel.name, kernel.gated, kernel.n_multiple, kernel.k_multiple
    ('dual_pingpong_208x64_1x1', True, 8, 8)
    """

    name: str
    family: str
    block_k: int
    threads: int
    n_multiple: int
    k_multiple: int
    alignment_bytes: int
    entries: tuple[EntryPoint, ...]
    arguments: tuple[tuple[str, str], ...]
    registers: int
    cubin: str
    sha256: str

    #: Whether it adds sums in one order whatever M is, if its split stays (``split_for_any_m``).
    batch_invariant: ClassVar[bool] = False

    def entry(self, asked: EntryPoint) -> str:
        """Name the entry point that is compiled for what is asked for."""
        return self.entries[self.entries.index(asked)].name

    @property
    def layouts(self) -> tuple[Layout, ...]:
        """Weight layouts that it is compiled for."""
        return tuple(dict.fromkeys(entry.layout for entry in self.entries))

    @property
    def gated(self) -> bool:
        """Whether it computes gate and up; the others compute the down projection."""
        return self.family not in PLAIN_FAMILIES

    @property
    @abstractmethod
    def most_shared(self) -> int:
        """Dynamic shared memory that a CTA may ask for (bytes)."""

    @property
    @abstractmethod
    def cluster_tokens(self) -> int:
        """Tokens (rows of the result) that a cluster computes at once."""

    @abstractmethod
    def estimate(
        self, problem: Problem, multiprocessors: int, measured: Mapping[str, Rates]
    ) -> Estimate | None:
        """Estimate a launch on a device of so many SMs; None if there is no way to cut the work.

        `measured` holds rates of variants by name.
        """

    @abstractmethod
    def launch_shape(
        self, problem: Problem, raster_rows: int, split: Split | None, resident: ResidentClusters
    ) -> LaunchShape:
        """Shape a launch; `raster_rows` of 0 is the variant's own."""

    @abstractmethod
    def launchable(self, problem: Problem, split: Split | None) -> bool:
        """Whether a table's split, or that there is none, goes with the kernel and the problem."""

    @abstractmethod
    def cuts(self, problem: Problem, multiprocessors: int) -> Iterator[tuple[int, Split | None]]:
        """Yield ways to cut the work that are worth measuring, each as raster_rows and split."""

    def considered(self, problem: Problem, able: Sequence[Variant]) -> bool:
        """Whether selection considers the kernel beside the others that are able to compute it."""
        return True

    def settles(self, problem: Problem) -> bool:
        """Whether no kernel of another kind comes near it: selection then considers none."""
        return False

    def split_for_any_m(
        self: _Kind, able: Sequence[_Kind], problem: Problem, multiprocessors: int
    ) -> Split | None:
        """Find a split that adds sums in one order for any M, or None.

        `able` are all batch-invariant kernels that can compute the problem, for any M.
        """
        return None

    def takes(self, problem: Problem) -> bool:
        """Whether it is made for this kind of weights: one, a pair, packed, along K or N."""
        return self.gated == problem.gated and problem.layout in self.layouts

    def obstacle(self, problem: Problem) -> str | None:
        """Name the first limit that a problem breaks, or None."""
        if self.gated != problem.gated:
            return (
                f"{self.name} computes gate and up, this is a product with one weight"
                if self.gated
                else f"{self.name} computes a product with one weight, this has gate and up"
            )
        if problem.n % self.n_multiple:
            return f"N must be a multiple of {self.n_multiple}, got {problem.n}"
        if problem.k % self.k_multiple:
            return f"K must be a multiple of {self.k_multiple}, got {problem.k}"
        if problem.layout is Layout.MIXED:
            return (
                "w_gate and w_up must have the same layout, both contiguous along K or both along N"
            )
        if problem.layout not in self.layouts:
            if problem.layout.packing:
                return "packed weights need a kernel of the interleave family"
            if self.family == "interleave":
                return "the weights must be packed (cuswiglu.pack)"
            return "the weights must be contiguous along K (a checkpoint's weight.T)"
        asked = problem.entry_point
        if asked not in (replace(entry, epilogue=asked.epilogue) for entry in self.entries):
            elements = ", ".join(dict.fromkeys(entry.x for entry in self.entries))
            return f"{self.name} computes {elements} only, got {asked.x}"
        if asked not in self.entries:
            return f"{self.name} computes SiLU only, without biases"
        return problem.tma_obstacle()
