"""Suite `quick`: four cells of the suite `paper`."""

from dataclasses import replace

from ..cells import cell
from . import paper

SUITE = replace(
    paper.SUITE,
    name="quick",
    about="four cells of paper",
    cells=(cell("0.5b", 2048), cell("3b", 512), cell("7b", 2048), cell("72b", 4096)),
)
