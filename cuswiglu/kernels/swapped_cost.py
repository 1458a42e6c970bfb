"""The cost model of kernels with exchanged operands, in microseconds on an H200.

Only the order of estimates matters: of the ways to cut 42 of gate's and up's shapes, the choice is
within 1.1% of the fastest in the mean.
"""

from __future__ import annotations

from dataclasses import dataclass

from .estimate import Work


@dataclass(frozen=True)
class Constants:
    """What was fitted for a kind of kernels.

    Attributes
    ----------
    launch : float
    last_token : float
        Behind the products of a tile that nothing hides, for each of its tokens.
    token, step : float
        A step of K for each token of a tile, and at least.
    hiding : float
        As `Work.hiding`.
    split : float
        Sums of a last wave that is cut along K.
    cluster, cluster_step : float
        What sharing X takes: a launch more, and steps in times of one alone.
    """

    launch: float
    last_token: float
    token: float
    step: float
    hiding: float
    split: float = 0.0
    cluster: float = 0.0
    cluster_step: float = 1.0


#: Fitted to 1,600 launches of Qwen-2.5's shapes at 65 to 4096 tokens.
GATED = Constants(1.46, 0.0107, 0.00147, 0.18, 1.947, 1.63, 0.40, 1.26)
#: Of one weight: fitted to 458 launches at 70 to 4096 tokens, 7.7% off in the mean.
PLAIN = Constants(0.22, 0.0, 0.00097, 0.161, 2.069, 4.08, 0.43, 1.46)
#: Of one weight, all tiles cut along K: fitted to 567 launches at 70 to 1000 tokens, 9% off.
SPLIT = Constants(1.97, 0.0256, 0.000956, 0.17, 1.356)


def microseconds(
    fitted: Constants,
    work: Work,
    width: int,
    steps: float,
    *,
    exposed: int,
    split: bool,
    clustered: bool,
) -> float:
    """Estimate the time of a launch.

    Parameters
    ----------
    fitted : Constants
    work : Work
    width : int
        Tokens of a tile.
    steps : float
        Of K, of the busiest CTA.
    exposed : int
        Tiles of the busiest CTA whose epilogues nothing hides.
    split, clustered : bool
        Whether only tiles of the last wave are cut along K, and whether CTAs share X.
    """
    step = max(fitted.token * width, fitted.step) * (fitted.cluster_step if clustered else 1.0)
    more = (fitted.split if split else 0.0) + (fitted.cluster if clustered else 0.0)
    epilogues = fitted.last_token * width * exposed
    return fitted.launch + epilogues + work.microseconds(steps * step) + more
