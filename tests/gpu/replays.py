"""What tests of repeated, captured and concurrent calls share; `fake_driver.run_in_threads` too."""

from __future__ import annotations


def same_bits(cupy, a, b):
    """Of two arrays of 16-bit numbers."""
    return bool((a.view(cupy.uint16) == b.view(cupy.uint16)).all())


def poison(array):
    """Fill an array of BF16 with NaN."""
    array.view("uint16")[...] = 0x7FC0


def captured(cupy, work):
    """work(), which has run before, as a CUDA graph; and the stream that it was captured on."""
    stream = cupy.cuda.Stream(non_blocking=True)
    cupy.cuda.runtime.deviceSynchronize()
    with stream:
        stream.begin_capture()
        work()
        return stream.end_capture(), stream
