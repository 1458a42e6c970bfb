"""Hatchling's build hook: cubins are made whenever a wheel is, editable or not."""

from __future__ import annotations

import sys
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class CubinBuildHook(BuildHookInterface):  # type: ignore[type-arg]
    """Build hook that runs build_scripts before the wheel is packed."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile the kernels whose sources have changed."""
        sys.path.insert(0, self.root)
        try:
            from build_scripts.build import build

            build(say=self.app.display_info)
        finally:
            sys.path.remove(self.root)
