"""Options of the questions that one asks of a run, and how they are offered where names are completed."""

import inspect
from typing import TypedDict, TypeVar, get_args, get_type_hints

from memfluence.estimators import Memory, Scan
from memfluence.findings import Selection

T = TypeVar("T")


class PairOptions(Selection, total=False):
    """Options of `Run.pairs`; `findings.high_influence_pairs` says what each does."""

    fdr: float | None
    null: float
    any_dependence: bool
    permutations: int
    device: str
    scan: Scan | None


class DuplicateOptions(Selection, total=False):
    """Options of `Run.duplicates`."""

    permutations: int


class Targets(TypedDict, total=False):
    """Options of `Run.trials_needed`: at least one of the first three."""

    stderr: float | None
    jaccard: float | None
    fdr: float | None
    mem: float
    infl: float
    same_class: bool
    keep: float | None
    memory: str | int | Memory | None


def spelled_out(methods: type[T]) -> type[T]:
    """Give the methods of a class that take the options of a `TypedDict` a signature that names each of them.

    Notebooks and `help` go by signatures; type checkers know the options without.
    """
    for method in vars(methods).values():
        named = list(inspect.signature(method).parameters.values()) if inspect.isfunction(method) else []
        if named and named[-1].kind is named[-1].VAR_KEYWORD and (taken := get_args(named[-1].annotation)):
            every = get_type_hints(taken[0]).items()
            options = [inspect.Parameter(one, named[0].KEYWORD_ONLY, annotation=hint) for one, hint in every]
            known = [one for one in named[:-1] if one.name not in get_type_hints(taken[0])]
            method.__signature__ = inspect.signature(method).replace(parameters=[*known, *options])
    return methods
