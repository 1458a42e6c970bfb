"""The memory of one GPU, shared by the processes of `pytest -n`.

Tests that fill it are marked `whole_gpu` and run while no other test does; before it waits for
one, a process gives back what its memory pool keeps.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import pathlib
import sys
import tempfile
from collections.abc import Iterator


@contextlib.contextmanager
def gpu_memory(*, whole: bool) -> Iterator[None]:
    """Hold a share of the GPU's memory, or all of it; at once where pytest runs in one process."""
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID")
    if run is None:
        yield
        return
    folder = pathlib.Path(tempfile.gettempdir())
    with (
        open(folder / f"cuswiglu-{run}.turn", "w") as turn,
        open(folder / f"cuswiglu-{run}.gpu", "w") as gpu,
    ):
        # Whoever wants all takes the turn first, so that nobody new gets a share meanwhile.
        try:
            fcntl.flock(turn, (fcntl.LOCK_EX if whole else fcntl.LOCK_SH) | fcntl.LOCK_NB)
        except BlockingIOError:
            _give_back()
            fcntl.flock(turn, fcntl.LOCK_EX if whole else fcntl.LOCK_SH)
        if not whole:
            fcntl.flock(gpu, fcntl.LOCK_SH)
            fcntl.flock(turn, fcntl.LOCK_UN)
        else:
            fcntl.flock(gpu, fcntl.LOCK_EX)
        try:
            yield
        finally:
            if whole:
                _give_back()


def _give_back() -> None:
    """Return to the driver what CuPy's pools keep for later."""
    cupy = sys.modules.get("cupy")
    if cupy is not None:
        cupy.get_default_memory_pool().free_all_blocks()
