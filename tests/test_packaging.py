"""What pyproject.toml promises."""

from __future__ import annotations

import pathlib

import pytest

ROOT = pathlib.Path(__file__).parent.parent


@pytest.fixture
def pyproject():
    tomllib = pytest.importorskip("tomllib", reason="tomllib is part of Python 3.11 and newer")
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def test_the_kernels_extra_has_the_compilers_of_the_build(pyproject):
    extra = pyproject["project"]["optional-dependencies"]["kernels"]
    build = pyproject["build-system"]["requires"]
    always = ("hatchling", "numpy", "ml_dtypes")
    assert [wheel for wheel in build if not wheel.startswith(always)] == extra


def test_nothing_depends_on_pytorch(pyproject):
    project = pyproject["project"]
    groups = [project["dependencies"], *project["optional-dependencies"].values()]
    groups.append(pyproject["build-system"]["requires"])
    assert not [name for group in groups for name in group if name.startswith("torch")]


def test_the_package_says_that_it_is_typed(pyproject):
    assert (ROOT / "cuswiglu" / "py.typed").is_file()
    assert "Typing :: Typed" in pyproject["project"]["classifiers"]
    assert pyproject["tool"]["mypy"]["strict"]
    assert "cuswiglu" in pyproject["tool"]["mypy"]["files"]


def test_a_wheel_holds_the_package_and_nothing_else():
    wheel = pytest.importorskip("hatchling.builders.wheel")
    paths = [
        file.distribution_path for file in wheel.WheelBuilder(str(ROOT)).recurse_included_files()
    ]
    assert {path.partition("/")[0] for path in paths} == {"cuswiglu"}
    assert "cuswiglu/selection/tuned_h200.json" in paths
    assert "cuswiglu/cubins/manifest.json" in paths


def test_a_source_distribution_holds_what_a_clone_does_but_for_the_kernels_built():
    sdist = pytest.importorskip("hatchling.builders.sdist")
    paths = [
        file.distribution_path for file in sdist.SdistBuilder(str(ROOT)).recurse_included_files()
    ]
    kept = {path.partition("/")[0] for path in paths}
    assert kept >= {"build_scripts", "cuswiglu", "docs", "kernels_cu", "notebooks", "tests"}
    assert not [path for path in paths if path.startswith("cuswiglu/cubins")]
