"""Whether a place is one for this run: before anything is written there, and while it goes on."""

from collections.abc import Mapping

from memfluence.errors import InputError, MemfluenceError, RunMismatchError
from memfluence.store.places import PARTIAL_PREFIX, Location, Place, file_errors, place_of
from memfluence.store.run_file import RUN_FILE, read_run_file


def check_is_ours(place: Place, directory: Location) -> None:
    """Refuse a path that holds anything but a run, or what a process that is just creating one has written so far."""
    with file_errors(f"looking into {directory}"):
        if place.is_file(directory):
            raise InputError(f"{directory} is a file; --out must name a directory for the run, new or of the same run.")
        if place.is_file(directory / RUN_FILE):
            return
        strange = [name for name in place.names(directory) if not _is_of_a_new_run(place, directory, name)]
    if strange:
        raise InputError(
            f"{directory} holds other files ({', '.join(sorted(strange)[:3])}{', ...' if len(strange) > 3 else ''})"
            f" and no {RUN_FILE}; --out must name a new or empty directory, or a run."
        )


def _is_of_a_new_run(place: Place, directory: Location, name: str) -> bool:
    if name in ("trials", "failures") and not place.is_file(directory / name):
        # Of a run that was created just now, it may have files.
        return not place.names(directory / name) or place.is_file(directory / RUN_FILE)
    return name.startswith(("examples-", PARTIAL_PREFIX, RUN_FILE))


def check_is_still_ours(directory: Location, identity: Mapping[str, str], written: Location) -> None:
    """Take back what was written and raise, if the directory holds another run by now.

    A remote run.json cannot be created exclusively, and one of this machine may be replaced while it has no trials. Of
    two processes that ask for different runs the last one's run.json stays; the other notices here, at its next
    segment.
    """
    try:
        there = read_run_file(directory)
    except MemfluenceError:
        return  # no reason to lose trials
    if there.identity != identity:
        place_of(directory).remove(written)
        raise another_run(directory)


def another_run(directory: Location) -> RunMismatchError:
    """What to raise where a process finds another run than the one that it works on."""
    return RunMismatchError(
        f"{directory} has become a different run, which another process asked for while this one had stored no trial;"
        " choose another --out for one of the two."
    )
