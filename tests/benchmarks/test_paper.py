"""What a record comes to: means, worst cells, targets and the paper's claims."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from benchmarks import paper_claims as claims
from benchmarks.targets import targets
from cuswiglu.bench.cells import cell
from cuswiglu.bench.record import Outcome
from cuswiglu.bench.report import figures
from tests.helpers.bench_records import (
    DUAL,
    FAILED,
    INTERLEAVE,
    SYNC,
    full,
    outcomes,
    record,
    row,
    variants,
)


def shown(of):
    """Targets by name; the second "its worst cell" is QuACK's."""
    found = {}
    for figure in targets(of):
        name = figure.name
        if name in found:
            name += " of quack"
        found[name] = figure
    return found


def claimed(of):
    return {claim.what: claim for claim in claims.claims(of)}


def test_geometric_mean():
    assert figures.geomean([2.0, 8.0]) == pytest.approx(4.0)
    assert figures.geomean([1.1]) == pytest.approx(1.1)
    assert math.isnan(figures.geomean([]))


def test_speed_is_against_the_fastest_and_leaves_out_cells_without_both():
    made = record(
        row("0.5b", 512, outcomes(100.0, quack=120.0, quack_default=110.0)),
        row("3b", 512, outcomes(100.0, quack=80.0)),
        row("7b", 512, outcomes(100.0) | {"quack": FAILED}),
        row("14b", 512, outcomes(None, quack=90.0)),
    )
    ratios = figures.speed(made, "auto", figures.QUACK)
    assert [(r.cell.model, r.value) for r in ratios] == [("0.5b", 1.1), ("3b", 0.8)]
    assert figures.worst(ratios).cell == cell("3b", 512)
    assert figures.best(ratios).cell == cell("0.5b", 512)


def test_targets_of_a_full_run():
    made = outcomes(100.0, bare=110.0, quack=106.0, quack_default=104.0, torch_eager=150.0)
    made |= variants(sync=99.0, interleave=100.5, dual=98.5)
    found = shown(full("paper", made))
    bare = found["auto against cuBLAS's bare GEMM, geometric mean"]
    assert (bare.value, bare.met, bare.partial) == ("1.100", "must", False)
    quack = found["auto against the best of quack, quack-default, geometric mean"]
    assert (quack.value, quack.met) == ("1.040", "must")
    assert found["its worst cell"].met == found["its worst cell of quack"].met == "aim"
    assert found["auto against torch eager, geometric mean"].met == "aim"
    assert found["best cell against torch eager"].met == "missed"
    choice = found["auto within 0.97 of the best variant"]
    assert choice.value.startswith("28 of 28 cells (worst 0.985")
    assert choice.met == "aim"


def test_worst_cell_is_named():
    made = record(
        row("0.5b", 512, outcomes(100.0, bare=130.0)),
        row("72b", 4096, outcomes(100.0, bare=96.0)),
    )
    worst = shown(made)["its worst cell"]
    assert (worst.value, worst.met) == ("0.960 (72b at M = 4096)", "missed")
    assert (worst.cells, worst.of, worst.partial) == (2, 28, True)


def test_utilisation_is_of_the_datasheets_peak():
    one = cell("72b", 4096)
    time = 4 * one.m * one.n * one.k / (0.78 * 989.5e12) * 1e6
    target = shown(record(row("72b", 4096, outcomes(time))))["best utilisation, of 989.5 TFLOP/s"]
    assert (target.value, target.met) == ("78.0% (72b at M = 4096)", "must")


def test_two_cells_of_28_may_miss_the_best_variant():
    good = full("paper", outcomes(100.0) | variants(dual=98.0))
    bad = {"auto": Outcome(100.0, choice=DUAL), **variants(dual=90.0)}
    for misses, met in ((0, "aim"), (1, "must"), (2, "must"), (3, "missed")):
        rows = [replace(one, outcomes=bad) for one in good.cells[:misses]]
        made = replace(good, cells=(*rows, *good.cells[misses:]))
        assert shown(made)["auto within 0.97 of the best variant"].met == met


def test_both_kernels_of_the_paper_must_be_exact_in_every_cell():
    made = record(
        row("0.5b", 512, outcomes() | variants(sync=90.0, interleave=95.0, dual=99.0)),
        row("3b", 512, outcomes() | variants(sync=95.0, interleave=90.0, dual=99.0)),
    )
    assert shown(made)["Kernel-1 and Kernel-2"].met == "aim"
    never = record(row("0.5b", 512, outcomes() | variants(sync=90.0, interleave=95.0)))
    assert shown(never)["Kernel-1 and Kernel-2"].met == "must"
    absent = record(row("0.5b", 512, outcomes() | variants(sync=90.0)))
    assert shown(absent)["Kernel-1 and Kernel-2"].met == "missed"
    rounded = variants(sync=90.0, interleave=95.0)
    rounded[SYNC] = replace(rounded[SYNC], relative_error=0.0025)
    twice = record(row("0.5b", 512, outcomes() | rounded))
    assert shown(twice)["Kernel-1 and Kernel-2"].met == "missed"


def test_the_whole_mlp_is_judged_against_the_best_unfused():
    made = outcomes(100.0, torch_eager=130.0, torch_compile=118.0, fused=110.0)
    (target,) = targets(full("mlp", made))
    assert target.name.startswith("whole MLP against the best of torch-eager, torch-compile, fused")
    assert (target.value, target.met, target.partial) == ("1.100", "must", False)


def test_a_target_says_who_was_there():
    (target,) = targets(full("mlp", outcomes(100.0, fused=110.0)))
    assert target.name == "whole MLP against fused, geometric mean"
    assert "quack" not in " ".join(shown(full("paper", outcomes(bare=110.0))))


def test_intensity_counts_gate_and_up_in_memory_before_fusion():
    one = cell("0.5b", 4096)
    m, n, k = 4096, 4864, 896
    fused_bytes = 2 * (m * k + 2 * k * n + m * n)
    assert figures.intensity(one, fused=True) == 4 * m * n * k / fused_bytes
    # Gate and up, written and read, BF16.
    unfused_bytes = fused_bytes + 2 * (2 * m * n) * 2
    assert figures.intensity(one, fused=False) == 4 * m * n * k / unfused_bytes
    gain = figures.intensity(one, fused=True) / figures.intensity(one, fused=False) - 1
    assert gain == pytest.approx(2.47, abs=0.005)  # the paper's "up to +247%"


def test_claims_of_one_cell():
    made = outcomes(100.0, bare=105.0, torch_eager=180.0, torch_compile=90.0)
    made |= variants(sync=99.0, dual=98.0)
    one = claims.of_cell(row("0.5b", 4096, made))
    assert one.speedup == pytest.approx(1.8)
    assert one.winner == "dual"
    assert one.fusion_efficiency == pytest.approx(1.05)
    assert one.compile == pytest.approx(0.5)
    assert (one.off, one.eager_off) == (0.0002, 0.0015)
    bare = claims.of_cell(row("0.5b", 4096, outcomes()))
    assert (bare.speedup, bare.winner, bare.compile, bare.eager_off) == (None, "", None, None)


def test_claims_stand_beside_the_papers():
    made = record(
        row(
            "0.5b",
            4096,
            outcomes(100.0, bare=105.0, torch_eager=180.0, torch_compile=150.0)
            | variants(sync=99.0, interleave=120.0, dual=98.0),
        ),
        row(
            "3b",
            512,
            outcomes(100.0, bare=95.0, torch_eager=120.0, torch_compile=120.0)
            | variants(sync=97.0, interleave=120.0, dual=98.0),
        ),
    )
    found = claimed(made)
    assert found["speed-up over PyTorch eager"].paper == "up to 2.47x"
    speedup = found["speed-up over PyTorch eager"].ours
    assert speedup == "1.20x to 1.80x, geometric mean 1.47x (2 cells)"
    wins = "Kernel-1 (sync) 1, Kernel-2 (interleave) 0, dual 1 of 2"
    assert found["cells won"].ours == wins
    assert "+247%" in found["gain in arithmetic intensity by fusion"].ours
    assert found["fusion efficiency"].ours.startswith("95.0% to 105.0%")
    assert found["torch.compile against eager"].ours.startswith("0.83x to 1.00x")
    mismatches = found["elements off by more than 1%"].ours
    assert mismatches == "auto 0.020% to 0.020%, eager 0.150% to 0.150%"
    assert "--suite mlp" in found["SwiGLU's share of unfused MLP time"].ours


def test_the_share_of_swiglu_is_what_eagers_products_do_not_take():
    made = outcomes(100.0, torch_eager=200.0, torch_linears=150.0)
    other = outcomes(100.0, torch_eager=200.0, torch_linears=180.0)
    found = claimed(record(row("0.5b", 512, made), row("3b", 512, other), suite="mlp"))
    share = found["SwiGLU's share of unfused MLP time"].ours
    assert share == "10.0% to 25.0%, mean 17.5% (2 cells)"
    assert "--suite paper" in found["gain in arithmetic intensity by fusion"].ours


def test_every_claim_is_there_even_if_nothing_was_measured():
    assert len(claimed(record())) == 8
    assert targets(record()) == []


def test_variants_that_win_are_found_by_family():
    one = row("0.5b", 512, outcomes() | variants(sync=97.0, interleave=96.0, dual=98.0))
    assert figures.best_variant(one) == (INTERLEAVE, 96.0)
    assert figures.best_variant(one, "dual") == (DUAL, 98.0)
    assert figures.winning_family(one) == "interleave"
    assert figures.families(record(one)) == ["sync", "interleave", "dual"]
    assert figures.best_variant(row("0.5b", 512, outcomes())) is None
