"""One field is one option: in Python's signature, in the command line, in plans and in experiments."""

import inspect
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import typer

import memfluence as mf
from memfluence.cli import _app, main
from memfluence.cli._terminal import as_options, say
from memfluence.engines.progress import Progress
from memfluence.errors import InputError
from memfluence.experiments.doing import Training
from memfluence.training.options import EngineOptions, PlanOptions, RunOptions, run_options

TYPED = """
from memfluence.training.options import RunOptions, taking

@taking(RunOptions)
def run(options: RunOptions) -> int:
    return 3

reveal_type(run("digits", trials=3, keep=[0.5, 0.7], engine="ray"))
run("digits", trils=3)
run("digits", trials="3")
run("digits", "mlp")
run()
"""


@pytest.mark.parametrize(("function", "options"), [(mf.run, RunOptions), (mf.plan, PlanOptions)])
def test_python_takes_the_fields(function: Any, options: type) -> None:
    parameters = inspect.signature(function).parameters
    assert {name: one.default for name, one in parameters.items() if name != "dataset"} == {
        one.name: one.default for one in fields(options) if one.name != "dataset"
    }
    assert next(iter(parameters)) == "dataset"
    assert all(one.kind is one.KEYWORD_ONLY for name, one in parameters.items() if name != "dataset")
    assert parameters["trials"].annotation == int | None
    assert "models" in str(inspect.getdoc(mf.run))
    with pytest.raises(TypeError, match="trils"):
        function("digits", trils=3)


def test_type_checkers_and_editors_see_them(tmp_path: Path) -> None:
    (tmp_path / "typed.py").write_text(TYPED)
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", "--follow-imports=skip", "--cache-dir=cache"]
    source = Path(__file__).parents[2] / "src" / "memfluence" / "training" / "options.py"
    done = subprocess.run(
        [*command, "typed.py", str(source)],
        cwd=tmp_path,
        env={"MYPYPATH": str(source.parents[2]), "PATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    said = [line.partition("typed.py:")[2] for line in done.stdout.splitlines() if line.startswith("typed.py:")]
    assert [line.partition(":")[0] for line in said] == ["8", "9", "10", "11", "12"], done.stdout
    assert 'Revealed type is "int"' in said[0]
    for line, expected in zip(said[1:], ("trils", '"trials" to "run"', "Too many positional", "Missing positional")):
        assert expected in line


@pytest.mark.parametrize(("name", "options"), [("run", RunOptions), ("plan", PlanOptions)])
def test_the_command_line_takes_the_fields(name: str, options: type) -> None:
    command: Any = typer.main.get_command(_app.app)
    there = {one.name: one for one in command.commands[name].params}
    for one in fields(options):
        assert (one.name in there) == (one.name == "dataset" or one.metadata["text"] is not None), one.name
    assert there["checkpoint_every"].default == 60.0 if name == "run" else there["pilot"].default is True


def test_what_is_typed_is_what_python_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[RunOptions] = []

    def take(options: RunOptions) -> None:
        taken.append(options)
        raise InputError("enough")

    monkeypatch.setattr("memfluence.training.campaign.prepare", take)
    line = "digits --set epochs=3 --set rate=1 --keep 0.5,0.7 --record margin,logit --quiet --retry-failed --shard 0/2"
    for typed in ("digits", line):
        with pytest.raises(SystemExit):
            main(["run", *typed.split()])
    given = [vars(one) for one in taken]
    assert isinstance(given[0]["progress"], Progress)
    assert given == [
        vars(RunOptions("digits", progress=given[0]["progress"])),
        vars(
            RunOptions(
                "digits",
                settings={"epochs": "3", "rate": "1"},
                keep=[0.5, 0.7],
                record=["margin", "logit"],
                progress=False,
                retry_failed=True,
                shard="0/2",
            )
        ),
    ]


def test_experiments_take_all_that_says_how_trials_are_run() -> None:
    assert {one.name for one in fields(EngineOptions)} < {one.name for one in fields(Training)}
    chosen = run_options(Training(engine="ray", address="a:1", train=False), dataset="digits", out="here")
    assert (chosen.dataset, chosen.engine, chosen.address, chosen.out) == ("digits", "ray", "a:1", "here")


@pytest.mark.parametrize(
    ("said", "typed"),
    [
        ("leave out `keep`.", "leave out --keep."),
        ("The `gpus_per_worker` parameter must be", "The --gpus-per-worker option must be"),
        ("use `engine='ray'`, or", "use --engine ray, or"),
        ("`retry_failed=True` runs", "--retry-failed runs"),
        ("`settings={'epochs': 3, 'rate': 1}`", "--set epochs=3 --set rate=1"),
        ("`record=['margin', 'logit']`", "--record margin,logit"),
        ("`shard=i/N`", "--shard i/N"),
        ("the command `ls -l`, and a lone `", "the command `ls -l`, and a lone `"),
        ("what others call `inputs`", "what others call `inputs`"),
    ],
)
def test_a_parameter_is_an_option_on_the_command_line(said: str, typed: str) -> None:
    assert as_options(said) == typed


def test_notes_and_results_are_in_the_words_of_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    Progress(words=as_options).note("trial 3 failed: raise `keep`")
    say("Lower it, for example with `settings={'rate': 0.05}`; see `others`.")
    shown = capsys.readouterr()
    assert shown.err == "trial 3 failed: raise --keep\n"
    assert shown.out == "Lower it, for example with --set rate=0.05; see `others`.\n"


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({"checkpoint_every": -1.0}, "--checkpoint-every=-1"),
        ({"device": "tpu"}, "--device tpu"),
        ({"workers": 0}, "--workers 0"),
        ({"keep": 0.5, "design": "explicit:m.npy"}, "--keep 0.5 --design explicit:m.npy"),
    ],
)
def test_one_mistake_is_one_sentence(
    options: dict[str, Any], line: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """In the words of the one who made it."""
    with pytest.raises(InputError) as error:
        mf.run("digits", out=tmp_path / "run", **options)
    with pytest.raises(SystemExit):
        main(["run", "digits", "--out", str(tmp_path / "run"), *line.split()])
    said = capsys.readouterr().err
    name = next(iter(options))
    assert f"`{name}`" in str(error.value)
    assert f"--{name.replace('_', '-')}" in said
    assert said == f"memfluence: {as_options(str(error.value))}\n"
