"""`cuswiglu tune`: what it refuses, what it measures, what it writes."""

from __future__ import annotations

import errno
import tempfile
from types import SimpleNamespace

import pytest

from cuswiglu import autotune
from cuswiglu.autotune import Tried
from cuswiglu.cli import main
from cuswiglu.cli import tune as tune_module
from cuswiglu.common.device import DeviceInfo
from cuswiglu.models.shapes import SHAPES
from cuswiglu.runtime import plan
from cuswiglu.selection import select, tuned
from cuswiglu.selection.tuned import Key
from tests.helpers.compiled import GATED, PLAIN
from tests.helpers.problems import problem
from tests.helpers.tables import H200, entry, table

SIZES = ["--hidden", "896", "--intermediate", "4864"]


@pytest.fixture
def tune(monkeypatch, tmp_path, capsys):
    """Run `cuswiglu tune` on an H200 that measures in no time.

    tune(*arguments) gives status, out, err, and the shapes that were measured with their options;
    tune.device is the GPU, tune.path the user's table.
    """
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    shapes = []

    def measure(shape, **options):
        shapes.append((shape, options))
        name = (GATED if shape.gated else PLAIN)[0].name
        return {
            Tried(name, 16): 20.0,
            Tried(name, 4): 10.0 + shape.m / 1000,
            autotune.PORTABLE: 30.0,
        }

    def run(*arguments):
        shapes.clear()
        status = main(["tune", *map(str, arguments)])
        printed = capsys.readouterr()
        return SimpleNamespace(status=status, out=printed.out, err=printed.err, shapes=list(shapes))

    run.device = H200
    run.path = tuned.cache_path()
    cuda = SimpleNamespace(Device=lambda: SimpleNamespace(id=0))
    monkeypatch.setattr(tune_module, "cupy_module", lambda: SimpleNamespace(cuda=cuda))
    monkeypatch.setattr(plan, "device_info", lambda index: run.device)
    monkeypatch.setattr(autotune, "measure", measure)
    return run


def check_refused(tune, words, *arguments):
    found = tune(*arguments)
    assert found.status == 1
    assert found.err.startswith("cuswiglu: error: ")
    for word in words:
        assert word in found.err, found.err
    assert found.shapes == []
    assert not tune.path.exists()


# What it refuses


@pytest.mark.parametrize("arguments", [(), ("--tokens", 512)])
def test_without_sizes_it_says_what_to_give(tune, arguments):
    words = ["nothing to tune", "--shape", "--hidden and --intermediate"]
    check_refused(tune, words, *arguments)


def test_a_gpu_that_runs_no_kernels_is_refused(tune):
    tune.device = DeviceInfo("NVIDIA A100", (8, 0), 108)
    words = ["tune needs a Hopper GPU (compute capability 9.0), got NVIDIA A100"]
    check_refused(tune, words, *SIZES)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--shape", "gpt-5"), ["--shape", "gpt-5", "qwen2.5-7b"]),
        (("--layout", "x", *SIZES), ["--layout", "'x'"]),
        (("--hidden", "many"), ["--hidden", "'many'"]),
        (("--intermediate", "many"), ["--intermediate", "'many'"]),
        (("--rounds", "many", *SIZES), ["--rounds", "'many'"]),
    ],
    ids=["model", "layout", "hidden", "intermediate", "rounds"],
)
def test_a_bad_option_is_named(tune, capsys, arguments, words):
    with pytest.raises(SystemExit) as caught:
        tune(*arguments)
    assert caught.value.code == 2
    printed = capsys.readouterr().err
    assert all(word in printed for word in words)


def test_tokens_that_are_no_numbers_are_refused(tune):
    with pytest.raises(SystemExit):
        tune(*SIZES, "--tokens", "512,many")


def refusal(tune, capsys, *arguments):
    """What is printed when arguments are refused, by argparse or by the command."""
    try:
        found = tune(*arguments)
    except SystemExit:
        return capsys.readouterr().err
    assert found.status == 1, found.out
    assert found.shapes == []
    return found.err


@pytest.mark.parametrize("tokens", ["512,many", "", "512,", "0", "-64", "512,-1"])
def test_bad_tokens_are_refused_by_name(tune, capsys, tokens):
    assert "--tokens" in refusal(tune, capsys, *SIZES, f"--tokens={tokens}")


@pytest.mark.parametrize(
    ("option", "arguments"),
    [
        ("--hidden", ["--hidden=-8", "--intermediate=64"]),
        ("--intermediate", ["--hidden=64", "--intermediate=-8"]),
        ("--rounds", [*SIZES, "--rounds=0"]),
        ("--rounds", [*SIZES, "--rounds=-1"]),
    ],
    ids=["hidden", "intermediate", "no rounds", "negative rounds"],
)
def test_a_number_that_is_not_positive_is_refused_by_name(tune, capsys, option, arguments):
    assert option in refusal(tune, capsys, *arguments)


@pytest.mark.parametrize("option", ["--hidden", "--intermediate"])
def test_one_size_without_the_other_is_refused_beside_a_model(tune, capsys, option):
    assert option in refusal(tune, capsys, "--shape", "qwen2.5-7b", option, "64")


# What it measures


def test_both_products_of_the_mlp_are_measured_for_every_count_of_tokens(tune):
    found = tune(*SIZES, "--tokens", "64,512", "--layout", "n", "--rounds", 3)
    assert [shape for shape, _ in found.shapes] == list(
        autotune.mlp_shapes(896, 4864, [64, 512], "n")
    )
    assert all(options == {"rounds": 3, "everything": False} for _, options in found.shapes)


def test_models_and_sizes_may_be_given_together(tune):
    names = ["qwen2.5-0.5b", "llama-3.1-8b"]
    found = tune("--shape", names[0], "--shape", names[1], *SIZES, "--tokens", "64")
    sizes = [*(SHAPES[name] for name in names), (896, 4864)]
    assert [(shape.k, shape.n) for shape, _ in found.shapes if shape.gated] == sizes


# What it writes


def test_choices_go_to_the_users_table(tune):
    found = tune(*SIZES, "--tokens", "64,500")
    assert (found.status, found.err) == (0, "")
    written = tuned.read(tune.path)
    assert (written.gpu, written.measured_with) == (H200.name, select.measured_with(H200))
    assert set(written.choices) == {
        Key(gated, m, n, k, "k")
        for m in (64, 504)
        for gated, n, k in [(True, 4864, 896), (False, 896, 4864)]
    }
    assert written.choices[Key(True, 64, 4864, 896, "k")] == tuned.Entry(GATED[0].name, 4, 10.06)
    assert written.rates == {}
    assert f"wrote 4 choices to {tune.path}" in found.out


def test_every_shape_is_printed_with_its_choice(tune):
    lines = tune(*SIZES, "--tokens", "64").out.splitlines()
    (gate_up,) = [line for line in lines if line.startswith("M=64 N=4864 K=896 gate and up: ")]
    assert f"{GATED[0].name} 10.1 us, 2.98 of cuBLAS's speed" in gate_up
    assert any(line.startswith("M=64 N=896 K=4864 down: ") for line in lines)


def test_what_was_tuned_is_what_selection_takes(tune):
    tune(*SIZES, "--tokens", "64")
    tuned.tables.cache_clear()
    choice = select.select(problem(m=50, n=4864, k=896), H200)
    assert (choice.variant, choice.raster_rows) == (GATED[0].name, 4)
    assert choice.reason == "measured: 10.1 us"


def test_another_file_can_be_written(tune, tmp_path):
    path = tmp_path / "elsewhere" / "table.json"
    assert tune(*SIZES, "--tokens", "64", "--output", path).status == 0
    assert len(tuned.read(path).choices) == 2
    assert not tune.path.exists()


def test_choices_of_before_stay(tune):
    tune(*SIZES, "--tokens", "64")
    tune("--hidden", 64, "--intermediate", 128, "--tokens", "64")
    assert len(tuned.read(tune.path).choices) == 4


def test_choices_of_other_kernels_go(tune):
    tuned.write(table({Key(True, 64, 8, 8, "k"): entry()}, kernels="other"), tune.path)
    tune(*SIZES, "--tokens", "64")
    assert len(tuned.read(tune.path).choices) == 2


def test_a_damaged_table_is_written_anew(tune):
    tune.path.parent.mkdir(parents=True)
    tune.path.write_text("{")
    with pytest.warns(UserWarning, match="ignores the tuned table"):
        assert tune(*SIZES, "--tokens", "64").status == 0
    assert len(tuned.read(tune.path).choices) == 2


def test_fit_measures_every_kernel_and_writes_rates(tune):
    found = tune("--hidden", 64, "--intermediate", 128, "--tokens", "64", "--fit")
    assert all(options["everything"] for _, options in found.shapes)
    rates = tuned.read(tune.path).rates
    assert set(rates) == {GATED[0].name, PLAIN[0].name}


def test_a_folder_that_cannot_be_written_is_told_before_anything_is_measured(tune, tmp_path):
    (tmp_path / "file").write_text("")
    path = tmp_path / "file" / "tuned.json"
    words = [f"{path} cannot be written (", "pass --output FILE in a folder that can be written"]
    check_refused(tune, words, *SIZES, "--output", path)


def test_a_read_only_home_is_told_before_anything_is_measured(tune, monkeypatch):
    def read_only(*arguments, **options):
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(tempfile, "TemporaryFile", read_only)
    words = [f"{tune.path} cannot be written (Read-only file system): pass --output FILE"]
    check_refused(tune, words, *SIZES)
