"""Activation of a checkpoint: looked up, and refused if cuswiglu does not compute it."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ..common.stack import callers_level
from ._architectures import (
    ACTIVATION_KEYS,
    ACTIVATION_OF,
    ALIASES,
    LANGUAGE_SECTIONS,
    MEANT,
    SUPPORTED,
    TELLTALE,
)
from ._weights import read_json

CONFIG = "config.json"


def of_safetensors(file: Path, names: Iterable[str]) -> str:
    """Look up a safetensors checkpoint's activation in the ``config.json`` beside it.

    Parameters
    ----------
    file : pathlib.Path
        The checkpoint, or its index.
    names : iterable of str
        Names of its tensors.

    Returns
    -------
    str
        One of `SUPPORTED`.

    Raises
    ------
    ValueError
        If it is not one of these, is not known, or ``config.json`` is damaged.

    Warns
    -----
    UserWarning
        If there is no ``config.json``, and SiLU is taken for granted.
    """
    path = file.with_name(CONFIG)
    try:
        config = read_json(path)
    except FileNotFoundError:
        return _of_bare(file, names, f"put the model's {CONFIG} beside it")
    except OSError as error:
        raise ValueError(f"path: {path} cannot be read ({error}); get it again") from error
    except ValueError as error:
        raise ValueError(f"path: {path} is not valid JSON ({error}); get it again") from error
    if not isinstance(config, dict):
        raise ValueError(f"path: {path} holds no JSON object; get it again")
    sections = [config[key] for key in LANGUAGE_SECTIONS if isinstance(config.get(key), dict)]
    for section in (*sections, config):
        found = _of_config(section)
        if found is not None:
            model, activation, said = found
            return _check(file, model, activation, f"{CONFIG}, {said}")
    raise ValueError(
        f"path: {path} does not say which activation the model uses: it has none of "
        f"{', '.join(ACTIVATION_KEYS)}, and its model_type {config.get('model_type')!r} is not "
        f"known; add hidden_act to it ({_choices()})"
    )


def of_gguf(file: Path, architecture: str | None, stated: str | None, names: Iterable[str]) -> str:
    """Look up the activation of a GGUF file.

    Parameters
    ----------
    file : pathlib.Path
    architecture : str or None
        Its ``general.architecture``, if it has one.
    stated : str or None
        The activation it states itself, which few do.
    names : iterable of str
        Names of its tensors.

    Returns
    -------
    str
        One of `SUPPORTED`.

    Raises
    ------
    ValueError
        If it is not one of these, or the architecture is not known.

    Warns
    -----
    UserWarning
        If the file does not say its architecture, and SiLU is taken for granted.
    """
    if stated is not None:
        return _check(file, architecture, stated, "its metadata")
    if architecture is None:
        fix = "merge the parts of a split model with `llama-gguf-split --merge`"
        return _of_bare(file, names, fix)
    if architecture not in ACTIVATION_OF:
        raise ValueError(
            f"path: {file} has the architecture {architecture!r}, whose activation is not known "
            f"here; known are {', '.join(sorted(ACTIVATION_OF))}: add it to ACTIVATION_OF in "
            "cuswiglu/models/_architectures.py"
        )
    return _check(file, architecture, ACTIVATION_OF[architecture], "its architecture")


def _of_config(section: dict[str, Any]) -> tuple[str, str, str] | None:
    """Model type, activation, and the key that states it; None if no key does."""
    model = str(section.get("model_type", "a model"))
    for key in ACTIVATION_KEYS:
        stated = section.get(key)
        if stated is not None:
            return model, MEANT.get((model, str(stated)), str(stated)), key
    if model in ACTIVATION_OF:
        return model, ACTIVATION_OF[model], "model_type"
    return None


def _of_bare(file: Path, names: Iterable[str], fix: str) -> str:
    """Guess the activation of an unnamed model by its tensors, or take SiLU and warn."""
    for name in sorted(names):
        for ending, model in TELLTALE.items():
            if name.endswith(ending):
                return _check(file, model, ACTIVATION_OF[model], f"the tensor {name}")
    warnings.warn(
        f"{file} does not say which activation its model uses, cuswiglu takes {SUPPORTED[0]}: "
        f"{fix}, to have it checked",
        stacklevel=callers_level(),
    )
    return SUPPORTED[0]


def _check(file: Path, model: str | None, activation: str, said: str) -> str:
    found = ALIASES.get(activation, activation)
    if found not in SUPPORTED:
        raise ValueError(
            f"path: {file} is of {model or 'a model'}, whose MLP uses the activation {activation} "
            f"(says {said}); cuswiglu computes {_choices()}: pass a model that uses one of them"
        )
    return found


def _choices() -> str:
    return ", ".join([*SUPPORTED, *ALIASES])
