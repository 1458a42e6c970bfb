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
    assert [wheel for wheel in build if not wheel.startswith(("hatchling", "numpy"))] == extra


def test_nothing_depends_on_pytorch(pyproject):
    project = pyproject["project"]
    groups = [project["dependencies"], *project["optional-dependencies"].values()]
    groups.append(pyproject["build-system"]["requires"])
    assert not [name for group in groups for name in group if name.startswith("torch")]


def test_the_package_says_that_it_is_typed(pyproject):
    assert (ROOT / "cuswiglu" / "py.typed").is_file()
    assert "Typing :: Typed" in pyproject["project"]["classifiers"]
    assert pyproject["tool"]["mypy"] == pyproject["tool"]["mypy"] | {
        "strict": True,
        "packages": ["cuswiglu"],
    }
