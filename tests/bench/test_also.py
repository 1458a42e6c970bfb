"""`cuswiglu bench --also DIR`: kernels of another build take part; selection does not know them."""

from __future__ import annotations

import hashlib
import json

import pytest

import cuswiglu
from cuswiglu.bench.cells import Cell
from cuswiglu.bench.contenders import _own
from cuswiglu.bench.contenders.inputs import Inputs
from cuswiglu.bench.run import run as bench_run
from cuswiglu.bench.suites import SUITES
from cuswiglu.cli import main
from cuswiglu.kernels.manifest import read_manifest
from cuswiglu.selection import select
from tests.helpers.bench_records import record
from tests.helpers.device_arrays import device_poisoned, on_device
from tests.helpers.host_arrays import poisoned

M, N, K = 300, 200, 136
FAMILIES = ["sync", "sync-late", "sync-bare"]
BY_SUITE = pytest.mark.parametrize("suite", ["paper", "quick", "random"])


@pytest.fixture
def ablations(tmp_path):
    """A folder as `python -m build_scripts --ablations` leaves it, of cubins that are none."""
    folder = tmp_path / "ablations"
    folder.mkdir()
    content = read_manifest()
    (like,) = (row for row in content["variants"] if row["family"] == "sync")
    rows = []
    for family in FAMILIES:
        name = like["name"].replace("sync", family)
        entry = like["entries"][0] | {"name": f"{name}_k".replace("-", "_")}
        code = entry["name"].encode()
        (folder / f"{name}.cubin").write_bytes(code)
        own = {"cubin": f"{name}.cubin", "sha256": hashlib.sha256(code).hexdigest()}
        rows.append(like | {"name": name, "family": family, "entries": [entry]} | own)
    (folder / "manifest.json").write_text(json.dumps(content | {"variants": rows}))
    return folder


@BY_SUITE
def test_every_kernel_of_the_folder_is_a_contender_named_after_it(ablations, suite):
    names = [contender.name for contender in SUITES[suite].find([ablations]).contenders]
    assert [name for name in names if name.startswith("ablations/")] == [
        f"ablations/{family}_pingpong_128x96_1x1" for family in FAMILIES
    ]
    assert names[0] == "auto"
    assert len(set(names)) == len(names)


@BY_SUITE
def test_all_other_contenders_are_there_as_without_it(ablations, suite):
    alone, beside = SUITES[suite].find(), SUITES[suite].find([ablations])
    others = [c.name for c in beside.contenders if not c.name.startswith("ablations/")]
    assert others == [contender.name for contender in alone.contenders]
    assert beside.missing == alone.missing


def test_only_the_kernel_without_an_activation_is_compared_with_the_product_of_gate_and_up(
    ablations,
):
    computes = [contender.computes for contender in _own.built(ablations).contenders]
    assert computes == ["swiglu", "swiglu", "ungated"]


def test_they_are_not_counted_among_the_packages_variants(ablations):
    assert {contender.family for contender in _own.built(ablations).contenders} == {""}


def test_selection_does_not_know_them(ablations):
    _own.built(ablations)
    assert "sync-late" not in select.known_names(cuswiglu.variants())
    with pytest.raises(ValueError, match="variant must be one of"):
        select.check_name("sync-late_pingpong_128x96_1x1")


@BY_SUITE
def test_a_folder_without_a_manifest_is_missing_and_the_reason_is_told(tmp_path, suite):
    found = SUITES[suite].find([tmp_path])
    assert (
        f"the kernel manifest {tmp_path / 'manifest.json'} is missing"
        in found.missing[str(tmp_path)]
    )
    assert not any(c.name.startswith(f"{tmp_path.name}/") for c in found.contenders)


def test_several_folders_take_part(ablations, tmp_path):
    other = tmp_path / "other"
    ablations.rename(other)
    assert {c.name.partition("/")[0] for c in _own.built(other).contenders} == {"other"}
    found = SUITES["random"].find([other, tmp_path])
    assert sum(c.name.startswith("other/") for c in found.contenders) == len(FAMILIES)
    assert str(tmp_path) in found.missing


@pytest.fixture
def inputs():
    """Two sets of weights of a cell, as `bench.inputs` has them: gate rows above up rows."""
    w2 = tuple(on_device(poisoned(2 * N, K)) for _ in range(2))
    made = Inputs(Cell("made-up", K, N, M), device_poisoned(M, K), w2, ())
    made.__dict__["hidden"] = device_poisoned(M, N)  # in place of CuPy's, which needs a GPU
    return made


def test_a_kernel_of_the_folder_is_launched_on_the_weights_of_the_set(
    gpu, monkeypatch, ablations, inputs
):
    monkeypatch.setattr(_own, "cupy_module", lambda: gpu.cupy)
    for contender in _own.built(ablations).contenders:
        gpu.driver.launches.clear()
        with gpu.cupy.cuda.Device(0), gpu.cupy.cuda.Stream(77):
            runner = contender.make(inputs)
            for number in (0, 1):
                runner.timed(number)
        assert runner.captured
        family = contender.name.partition("/")[2].partition("_")[0]
        for number, launch in enumerate(gpu.driver.launches):
            arrays = inputs.x, inputs.w_gate[number], inputs.w_up[number], inputs.hidden
            assert launch.entry == f"{family.replace('-', '_')}_pingpong_128x96_1x1_k"
            assert list(launch.addresses) == [a.data.ptr for a in arrays]
            assert launch.sizes == (M, N, K)
            assert (launch.stream, launch.named["weights_ahead"]) == (77, 0)
        assert len(gpu.driver.launches) == 2


def test_folders_of_the_command_line_are_looked_into(monkeypatch, capsys, tmp_path):
    pytest.importorskip("rich")
    found = []

    def run(begun, wanted, find, path, **options):
        found.append(find())
        return record()

    monkeypatch.setattr(bench_run, "run", run)
    folders = [tmp_path / "one", tmp_path / "two"]
    also = [word for folder in folders for word in ("--also", str(folder))]
    assert main(["bench", "--suite", "quick", *also]) == 0
    assert {str(folder) for folder in folders} <= set(found[0].missing)
    capsys.readouterr()
