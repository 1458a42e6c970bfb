"""Every public name has an example in its docstring, and each example prints what it says."""

from __future__ import annotations

import doctest
import inspect

import pytest

pytest.importorskip("jax")

import cuswiglu
import cuswiglu.jax
import cuswiglu.models

MODULES = (cuswiglu, cuswiglu.jax, cuswiglu.models)
#: Constants, which have no docstring -> the name whose examples show them.
SHOWN_BY = {"cuswiglu.jax.COMPILER_OPTIONS": "cuswiglu.jax.mlp"}
PUBLIC = {
    f"{module.__name__}.{name}": getattr(module, name)
    for module in MODULES
    for name in module.__all__
    if name != "__version__"
}
METHODS = {
    f"{owner}.{name}": method
    for owner, public in PUBLIC.items()
    if inspect.isclass(public)
    for name, method in inspect.getmembers(public, callable)
    if name == "__call__" or not name.startswith("_")
}
OPTIONS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def examples_of(name, documented):
    """The examples of one docstring, which share their names."""
    text = inspect.getdoc(documented) or ""
    return doctest.DocTestParser().get_doctest(text, {}, name, filename=None, lineno=None)


EXAMPLES = {
    name: made
    for name, documented in (PUBLIC | METHODS).items()
    if name not in SHOWN_BY and (made := examples_of(name, documented)).examples
}


@pytest.mark.parametrize("name", sorted(PUBLIC.keys() - SHOWN_BY.keys()))
def test_a_public_name_has_an_example(name):
    assert name in EXAMPLES


@pytest.mark.parametrize(("name", "shown_by"), SHOWN_BY.items())
def test_a_constant_is_shown_by_the_examples_of_another_name(name, shown_by):
    assert any(name in example.source for example in EXAMPLES[shown_by].examples)


@pytest.mark.parametrize("name", sorted(EXAMPLES))
def test_an_example_prints_what_it_says(name, request, capsys, jax_on_the_cpu, model_folder):
    made = EXAMPLES[name]
    if any("import cupy" in example.source for example in made.examples):
        request.getfixturevalue("cupy_here")
    runner = doctest.DocTestRunner(optionflags=OPTIONS)
    runner.run(made)
    assert runner.failures == 0, capsys.readouterr().out


def test_no_example_is_skipped():
    skipped = [
        name
        for name, made in EXAMPLES.items()
        if any(doctest.SKIP in example.options for example in made.examples)
    ]
    assert skipped == []
