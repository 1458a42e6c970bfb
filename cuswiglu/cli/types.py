"""Types of command-line options."""

from __future__ import annotations

import argparse


def positive(text: str) -> int:
    """Read an integer of at least 1."""
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, got {value}")
    return value


def positives(text: str) -> list[int]:
    """Read integers of at least 1, between commas."""
    return [positive(part) for part in text.split(",")]


def names(text: str) -> list[str]:
    """Read names between commas, in lower case."""
    return [part.strip().lower() for part in text.split(",") if part.strip()]
