"""`cuswiglu info` and `cuswiglu demo`, on the CPU."""

from __future__ import annotations

import json
import re

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from cuswiglu import environment
from cuswiglu.api import functional
from cuswiglu.backends import reference
from cuswiglu.cli import main
from cuswiglu.environment import Gpu
from cuswiglu.runtime import driver


@pytest.fixture(autouse=True)
def _no_gpu(monkeypatch):
    monkeypatch.setattr(driver, "installed", lambda: False)


@pytest.fixture
def checkpoint(tmp_path):
    """A file with two layers of K = 32, N = 48."""
    draw = np.random.default_rng(0).standard_normal

    def weight(rows, columns):
        return (draw((rows, columns), dtype=np.float32) * columns**-0.5).astype(ml_dtypes.bfloat16)

    tensors = {}
    for layer in range(2):
        prefix = f"model.layers.{layer}.mlp"
        tensors[f"{prefix}.gate_proj.weight"] = weight(48, 32)
        tensors[f"{prefix}.up_proj.weight"] = weight(48, 32)
        tensors[f"{prefix}.down_proj.weight"] = weight(32, 48)
    path = tmp_path / "model.safetensors"
    save_file(tensors, path)
    (tmp_path / "config.json").write_text('{"hidden_act": "silu"}')
    return path


def test_info_says_which_backend_and_why(capsys):
    assert main(["info"]) == 0
    out = capsys.readouterr().out
    assert re.search(r"^backend: +numpy: no NVIDIA driver was found here", out, re.MULTILINE)
    assert re.search(r"^kernels: +\d+ cubins for sm_90a", out, re.MULTILINE)


def test_info_as_json_is_what_a_bug_report_needs(capsys):
    assert main(["info", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["backend"] == "numpy"
    assert found["packages"]["numpy"] == np.__version__
    assert found["toolchain"]["nvrtc"].startswith("12.9")


@pytest.mark.parametrize(
    ("gpus", "backend", "words"),
    [
        ([Gpu("NVIDIA H200", "9.0", 132)], "sm90", ""),
        ([Gpu("NVIDIA A100", "8.0", 108)], "cublas", "compute capability 8.0, the kernels need"),
    ],
)
def test_the_backend_follows_the_gpu(monkeypatch, gpus, backend, words):
    pytest.importorskip("cupy")
    monkeypatch.setattr(environment, "_gpus", lambda: ("13.0", gpus, ""))
    found = environment.collect()
    assert found.backend == backend
    assert words in found.reason


def test_demo_prints_a_line_for_every_layer_and_checks_them(checkpoint, capsys):
    assert main(["demo", "--weights", str(checkpoint), "--tokens", "40"]) == 0
    out = capsys.readouterr().out
    rows = re.findall(r"^ (\d+) +32x48x32 +numpy +numpy +[\d.]+ +[\d.]+ +([\d.]+)% *$", out, re.M)
    assert [layer for layer, _ in rows] == ["0", "1"]
    assert all(float(share) > 95 for _, share in rows)
    assert "all 2 layers match FP64" in out


def test_demo_of_some_layers_only(checkpoint, capsys):
    assert main(["demo", "--weights", str(checkpoint), "--tokens", "8", "--layers", "1"]) == 0
    assert "all 1 layers match FP64" in capsys.readouterr().out


def test_demo_computes_the_models_activation_and_biases(checkpoint, capsys, monkeypatch):
    """The reference is told what `mlp` is told: what that is tells more than a match."""
    biases = {"b_up": np.full(48, 0.5), "b_down": np.full(32, -2.0)}
    biases = {name: values.astype(ml_dtypes.bfloat16) for name, values in biases.items()}
    tensors = load_file(checkpoint)
    for name, values in biases.items():
        tensors[f"model.layers.0.mlp.{name.removeprefix('b_')}_proj.bias"] = values
    save_file(tensors, checkpoint)
    (checkpoint.parent / "config.json").write_text('{"model_type": "gemma2"}')
    told, mlp = [], functional.mlp
    monkeypatch.setattr(functional, "mlp", lambda x, **given: told.append(given) or mlp(x, **given))
    assert main(["demo", "--weights", str(checkpoint), "--tokens", "40"]) == 0
    assert "all 2 layers match FP64" in capsys.readouterr().out
    assert {given["activation"] for given in told} == {"gelu_tanh"}
    of_layers = told[0], told[-1]  # each layer is computed several times
    for given, expected in zip(of_layers, (biases, {}), strict=True):
        for name in ("b_gate", "b_up", "b_down"):
            np.testing.assert_array_equal(given[name], expected.get(name))


def test_demo_fails_when_a_result_is_wrong(checkpoint, capsys, monkeypatch):
    right = reference.matmul

    def wrong(x, weight, out):
        right(x, weight, out)
        out[:, 0] = 0

    monkeypatch.setattr(reference, "matmul", wrong)
    assert main(["demo", "--weights", str(checkpoint), "--tokens", "8"]) == 1
    assert "wrong results in layers [0, 1]" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--weights", "no-such-file.gguf"], "no-such-file.gguf"),
        (["--shape", "smollm2-135m", "--tokens", "1", "--variant", "duel"], "variant must be one"),
        (["--shape", "smollm2-135m", "--tokens", "1", "--variant", "dual"], "arrays on the CPU"),
    ],
)
def test_demo_says_in_one_line_what_is_wrong(capsys, arguments, words):
    assert main(["demo", *arguments]) == 1
    err = capsys.readouterr().err
    assert err.startswith("cuswiglu: error: ")
    assert words in err


def test_demo_refuses_a_number_of_tokens_that_is_not_positive(capsys):
    with pytest.raises(SystemExit):
        main(["demo", "--tokens", "0"])
    assert "--tokens" in capsys.readouterr().err
