"""Kernels loaded on a device."""

from __future__ import annotations

from ..kernels import manifest
from ..kernels.variant import Variant
from ..problem import Problem
from .driver import Driver, DriverError


class LoadedKernel:
    """A kernel loaded on the problem's device, and how many of its clusters run there at once."""

    def __init__(self, kernel: Variant, problem: Problem, cuda: Driver) -> None:
        self._kernel, self._cuda = kernel, cuda
        self._device = problem.device.index
        self._entry = kernel.entry(problem.entry_point)
        self.function = cuda.kernel(
            manifest.cubin(kernel), kernel.sha256, self._entry, self._device, kernel.most_shared
        )

    def resident_clusters(self, cluster: int, shared_bytes: int) -> int:
        """Count the clusters of so many CTAs, each with so much shared memory, that run at once.

        Raises
        ------
        DriverError
            If there is no room for one.
        """
        shape = (cluster, 1)
        probe = self._cuda.config(shape, shape, self._kernel.threads, shared_bytes)
        found = self._cuda.resident_clusters(self.function, probe, self._entry)
        if found < 1:
            raise DriverError(
                f"no cluster of {self._kernel.name} fits on CUDA device {self._device} (a MIG "
                "slice?): use variant='cublas', or a variant with cluster 1x1"
            )
        return found
