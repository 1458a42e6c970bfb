"""Capture of a layer's call in a CUDA graph."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from typing import Any

from .. import arrays
from ..arrays import ArrayView
from ..runtime.driver import driver


class CapturedMLP:
    """Call of a `GatedMLP` in a CUDA graph, made by `GatedMLP.capture`; calling it replays.

    Attributes
    ----------
    mlp : GatedMLP
    x : (..., K) cupy.ndarray
        What a replay reads: write it, or pass the call an array to copy.
    y : (..., K_out) cupy.ndarray
        What a replay writes. Already the MLP of the `x` that was captured.

    Notes
    -----
    It holds all that the graph uses: the weights, x, y, the intermediate and cuBLAS's workspace,
    which no cache or memory pool has a part in. Kernels stay loaded as long as the process.

    Replays read and write the same x and y: have them one after another on one stream, or order
    them by events. Threads may share it, under the same rule.

    Examples
    --------
    On a GPU:

    >>> import cupy
    >>> from ml_dtypes import bfloat16
    >>> import cuswiglu
    >>> shapes = (64, 192), (64, 192), (192, 64)
    >>> layer = cuswiglu.GatedMLP(*(cupy.empty(shape, bfloat16) for shape in shapes))
    >>> x = cupy.empty((4, 64), bfloat16)
    >>> step = layer.capture(x)
    >>> step(x) is step.y  # copies x into step.x, and replays
    True
    >>> step() is step.y  # replays on what step.x holds
    True
    """

    def __init__(self, mlp: Callable[..., Any], x: ArrayView, columns: int) -> None:
        if x.device.kind != "cuda":
            raise ValueError(
                f"x must live on a CUDA device to be captured, got an array on {x.device}: call "
                "the GatedMLP itself, or move x and the weights with cupy.asarray"
            )
        if x.empty:
            raise ValueError(f"x must have tokens to be captured, got shape {x.shape}")
        self.mlp = mlp
        self._device = x.device
        self._lock = threading.Lock()
        # Memory of its own, which nobody else is given, and which the driver frees once the GPU
        # is done with it.
        self._pool = arrays.cupy_module().cuda.MemoryPool()
        self._held: list[Any] = []
        with arrays.on_stream(x.device, None):
            self._capture(x, (*x.shape[:-1], columns))

    def _capture(self, x: ArrayView, shape: tuple[int, ...]) -> None:
        """Capture the call; the device is current, and x is ready on the current stream."""
        cupy = arrays.cupy_module()
        stream = cupy.cuda.Stream(non_blocking=True)
        stream.wait_event(cupy.cuda.get_current_stream().record())
        with stream:
            with cupy.cuda.using_allocator(self._pool.malloc):
                self.x = arrays.empty(x.shape, x.device, x.dtype)
                self.y = arrays.empty(shape, x.device, x.dtype)
                cupy.copyto(self.x, x.array)
                self.mlp(self.x, out=self.y)  # plans, loads and compiles what is needed
            stream.synchronize()
            with cupy.cuda.using_allocator(self._keep):
                stream.begin_capture()
                try:
                    self.mlp(self.x, out=self.y)
                except BaseException:
                    with contextlib.suppress(Exception):  # the error before is the one to report
                        stream.end_capture()
                    raise
                self._graph = stream.end_capture()

    def _keep(self, size: int) -> Any:
        """Allocate what the graph uses at each replay."""
        memory = self._pool.malloc(size)
        self._held.append(memory)
        return memory

    def __call__(self, x: Any = None, *, stream: Any = None) -> Any:
        """Replay the captured call.

        Parameters
        ----------
        x : (..., K) array, optional
            Copied into the captured `x` first, which it must equal in shape, dtype and device.
        stream : optional
            As in `cuswiglu.swiglu`; the current CuPy stream of the device by default.

        Returns
        -------
        (..., K_out) cupy.ndarray
            `y`, the same array each time.

        Raises
        ------
        TypeError, ValueError
            Naming what was captured and what came, before anything is written.
        DriverError
            In a forked child.

        Notes
        -----
        Nothing synchronises.
        """
        driver().check_process()
        if x is not None:
            x = arrays.import_array("x", x, stream)
            self._check(arrays.view("x", x))
        with self._lock, arrays.on_stream(self._device, stream):
            if x is not None and x is not self.x:
                arrays.cupy_module().copyto(self.x, x)
            self._graph.launch()
        return self.y

    def _check(self, x: ArrayView) -> None:
        if x.device != self._device:
            raise ValueError(
                f"x must live where it was captured, on {self._device}, got an array on "
                f"{x.device}: move it there, or capture the GatedMLP anew"
            )
        if x.dtype != self.x.dtype.name:
            raise TypeError(
                f"x must have the captured dtype {self.x.dtype.name}, got {x.dtype}: convert it"
            )
        if x.shape != self.x.shape:
            raise ValueError(
                f"x must have the captured shape {self.x.shape}, got {x.shape}: capture the "
                "GatedMLP anew for this shape"
            )

    def __repr__(self) -> str:
        """Say the shapes and the layer in a line."""
        return f"CapturedMLP(x {self.x.shape}, y {self.y.shape}, {self.mlp!r})"
