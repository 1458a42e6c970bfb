"""Sphinx's configuration: Markdown pages, and a reference made from the docstrings.

The package is imported from this checkout: neither CuPy, CUDA nor compiled kernels are needed.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from docutils import nodes
from docutils.parsers.rst import Directive
from sphinx.application import Sphinx

os.environ["COLUMNS"] = "88"  # of help texts, wherever they are made
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import cuswiglu
from cuswiglu.cli import parser

project = "cuswiglu"
release = version = cuswiglu.__version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "numpydoc"]
html_theme = "furo"
html_title = f"cuswiglu {release}"
nitpicky = False
default_role = "py:obj"
myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_preserve_defaults = True  # a default that is a path is no path of the building machine
autodoc_typehints = "none"  # the docstrings say more
numpydoc_show_class_members = False  # autodoc has them


class CommandHelp(Directive):
    """The help text of a command: ``.. command-help:: bench``; of `cuswiglu` itself without one."""

    optional_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Make the help text of the argument's parser a block of text."""
        found = parser()
        for name in self.arguments:
            (commands,) = (
                action
                for action in found._actions
                if isinstance(action, argparse._SubParsersAction)
            )
            found = commands.choices[name]
        text = found.format_help()
        return [nodes.literal_block(text, text, language="text")]


def setup(app: Sphinx) -> None:
    """Add the directive."""
    app.add_directive("command-help", CommandHelp)
