"""Files: written whole or not at all, readable by their owner alone."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path


def make_folder(path: Path) -> None:
    """Make the folder of a file, for its owner alone, and see that files can be made there.

    Raises
    ------
    OSError
        Naming the file and the reason.
    """
    import tempfile  # costs more to import than the rest of the package

    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        raise OSError(f"{path} cannot be written ({error.strerror})") from error


def whole(path: Path, content: bytes) -> None:
    """Write a file beside its place, then put it there in one step; its folder must exist.

    Raises
    ------
    OSError
        If it cannot be written; what was there before is left as it was.
    """
    import tempfile  # costs more to import than the rest of the package

    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):  # the first error is the one to be told
            os.unlink(temporary)
        raise
