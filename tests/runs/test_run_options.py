"""Options of a run's methods are offered where a notebook or `help` completes names."""

import inspect
from collections.abc import Callable

import pytest

import memfluence as mf


@pytest.mark.parametrize("method", [mf.Run.pairs, mf.Run.find_pairs, mf.Run.show_pairs])
def test_options_of_pairs_are_named_with_their_types(method: Callable[..., object]) -> None:
    parameters = inspect.signature(method).parameters
    assert parameters["fdr"].annotation == float | None
    assert parameters["same_class"].kind is inspect.Parameter.KEYWORD_ONLY
    assert parameters["mem"].annotation == float | None
    assert "options" not in parameters


def test_every_method_of_a_run_is_typed_and_says_what_it_does() -> None:
    for name, method in inspect.getmembers(mf.Run, inspect.isfunction):
        if not name.startswith("_"):
            assert method.__doc__, name
            signature = inspect.signature(method)
            assert signature.return_annotation is not inspect.Signature.empty, name
            untyped = [one for one in list(signature.parameters.values())[1:] if one.annotation is one.empty]
            assert not untyped, name
