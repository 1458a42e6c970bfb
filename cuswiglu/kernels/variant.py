"""Variants: one compiled kernel, its limits and its entry points."""

from __future__ import annotations

from dataclasses import dataclass

from ..problem import Problem

#: Families for few tokens, of gate and up and of one weight.
DECODE_FAMILIES = ("decode", "decode-plain")
SHARED_BYTES = 227 << 10  # of an SM, for one CTA
PLAIN_FAMILIES = ("plain", "decode-plain")
#: What is behind a weight layout in `Variant.entries`: of a dtype, then of extras.
_DTYPES = {"bfloat16": "", "float16": "_f16"}
_EXTRAS = {False: "", True: "_any"}


@dataclass(frozen=True)
class Variant:
    """A compiled kernel instance: a `TileVariant` or a `DecodeVariant`.

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
    entries : tuple of (str, str)
        Weight layout ("k", "n", or "p8" and "p1" for packed weights), with "_f16" behind it for
        FP16, and "_any" for biases and activations other than SiLU -> entry point.
    registers : int
        A thread at entry.
    cubin, sha256 : str
        The file's path, and the hash of its content.

    Examples
    --------
    >>> import cuswiglu
    >>> kernel = next(one for one in cuswiglu.variants() if one.family == "dual")
    >>> kernel.name, kernel.gated, kernel.n_multiple, kernel.k_multiple
    ('dual_pingpong_128x96_1x1', True, 8, 8)
    """

    name: str
    family: str
    block_k: int
    threads: int
    n_multiple: int
    k_multiple: int
    alignment_bytes: int
    entries: tuple[tuple[str, str], ...]
    registers: int
    cubin: str
    sha256: str

    def entry(self, major: str, dtype: str = "bfloat16", *, extras: bool = False) -> str:
        """The entry point for weights that lie so, and arrays of a dtype; as `Problem.extras`."""
        return dict(self.entries)[major + _DTYPES[dtype] + _EXTRAS[extras]]

    @property
    def layouts(self) -> tuple[str, ...]:
        """Weight layouts that it is made for; for SiLU in BF16 all of them."""
        return tuple(key for key, _ in self.entries if "_" not in key)

    @property
    def gated(self) -> bool:
        """Whether it computes gate and up; the others compute the down projection."""
        return self.family not in PLAIN_FAMILIES

    @property
    def most_shared(self) -> int:
        """Dynamic shared memory that a CTA may ask for (bytes)."""
        raise NotImplementedError

    @property
    def tiles_a_cluster(self) -> int:
        """Tiles of the result that a cluster computes at once."""
        return 1

    def takes(self, problem: Problem) -> bool:
        """Whether it is made for this kind of weights: one, a pair, packed, along K or N."""
        return self.gated == problem.gated and problem.major in self.layouts

    def obstacle(self, problem: Problem) -> str | None:
        """The first limit that a problem breaks, in words, or None."""
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
        if problem.major == "mixed":
            return (
                "w_gate and w_up must have the same layout, both contiguous along K or both along N"
            )
        if problem.major not in self.layouts:
            if problem.packed:
                return "packed weights need a kernel of the interleave family"
            if self.family == "interleave":
                return "the weights must be packed (cuswiglu.pack)"
            return "the weights must be contiguous along K (a checkpoint's weight.T)"
        keys = dict(self.entries)
        if problem.major + _DTYPES[problem.dtype] not in keys:
            return f"{self.name} computes bfloat16 only, got {problem.dtype}"
        if problem.major + _DTYPES[problem.dtype] + _EXTRAS[problem.extras] not in keys:
            return f"{self.name} computes SiLU only, without biases"
        return problem.tma_obstacle()
