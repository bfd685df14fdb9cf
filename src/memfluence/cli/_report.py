"""`report` and `serve`: the explorer as a folder, and in the browser."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from memfluence.cli._terminal import DataOption, JsonOption, KeepOption, OpenedRun, Said, as_json, say, size

if TYPE_CHECKING:
    from memfluence.runs import Run

FolderOption = Annotated[
    Path | None, "Folder of the explorer.  [default: RUN/report; of a remote run runs/NAME/report]", "--out"
]
TitleOption = Annotated[str | None, "The page's title.  [default: from the learner and the data]", "--title TEXT"]


def report(
    run: OpenedRun,
    out: FolderOption = None,
    data: DataOption = None,
    keep: KeepOption = None,
    title: TitleOption = None,
) -> Said:
    """Write the explorer: a folder that any browser opens, from the disk or from any web server.

    It shows the histogram, every example with its scores and influences, pairs, likely mislabels and near-duplicates to
    tick, and a table of classes. It needs no network.
    """
    folder = out or run.folder / "report"
    page = _write(run, folder, data, keep, title)
    files = [file.stat().st_size for file in folder.rglob("*") if file.is_file()]
    yield {"page": str(page), "files": len(files), "bytes": sum(files)}
    say(f"Open {page} ({len(files)} files, {size(sum(files))})")


def serve(
    run: OpenedRun,
    out: FolderOption = None,
    data: DataOption = None,
    keep: KeepOption = None,
    title: TitleOption = None,
    port: Annotated[int, "The first to try; the next free one is taken, any free one for 0."] = 8000,
    host: Annotated[str, "Address to listen on; others than this machine's own let others in."] = "127.0.0.1",
    json: JsonOption = False,
) -> None:
    """Show the explorer in the browser until Ctrl-C; it is written first where it is missing or out of date."""
    from memfluence.report import ReportServer, is_current

    folder = out or run.folder / "report"
    if not is_current(run, folder, dataset=data, keep=keep, title=title):
        _write(run, folder, data, keep, title)
    with ReportServer(folder, host, port) as server:
        if json:
            as_json({"url": server.url})
        else:
            say(f"{server.url} (Ctrl-C to stop)")
        if not server.is_private:
            typer.echo("Everyone who reaches this machine can look at the report: there is no password.", err=True)
        typer.get_text_stream("stdout").flush()
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            return


def _write(run: "Run", folder: Path, data: str | None, keep: float | None, title: str | None) -> Path:
    from memfluence.engines.progress import share_of

    with share_of("explorer") as shown:
        return run.report(folder, dataset=data, keep=keep, title=title, progress=shown)
