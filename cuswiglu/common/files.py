"""Files that are written whole or not at all, readable by their owner alone."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def make_folder(path: Path) -> None:
    """Make the folder of a file, for its owner alone, and check that files can be made there.

    Raises
    ------
    OSError
        Naming the file and the reason.
    """
    import tempfile  # costs more to import than the rest of the package

    with _named(path):
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with tempfile.TemporaryFile(dir=path.parent):
            pass


def atomic_write(path: Path, content: bytes) -> None:
    """Write a file beside its place, then put it there in one step; its folder must exist.

    Raises
    ------
    OSError
        Naming the file and the reason; what was there before is left as it was.
    """
    import tempfile

    with _named(path):
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(content)
            os.replace(temporary, path)
        except BaseException:
            with contextlib.suppress(OSError):  # the first error is the one to report
                os.unlink(temporary)
            raise


def write_json(path: Path, content: Any) -> None:
    """Write an object as indented JSON, with `atomic_write`."""
    atomic_write(path, (json.dumps(content, indent=1) + "\n").encode())


@contextlib.contextmanager
def _named(path: Path) -> Iterator[None]:
    """Raise errors that name the file asked for, in place of the temporary one beside it."""
    try:
        yield
    except OSError as error:
        raise OSError(f"{path} cannot be written ({error.strerror or error})") from error
