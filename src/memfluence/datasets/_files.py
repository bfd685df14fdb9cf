"""Where the files of a dataset are, or what a user needs to hear when they are not there."""

from pathlib import Path

from memfluence.errors import DatasetError

__all__ = ["folder_with", "require_file"]


def require_file(path: Path, name: str) -> Path:
    """The path itself if it is a file; otherwise the `DatasetError` that a user needs."""
    if path.is_file():
        return path
    found = "is a folder, not a file" if path.is_dir() else "does not exist"
    raise DatasetError(f"{name}: {path} {found}; give the path of the data file.")


def folder_with(file_names: tuple[str, ...], folder: Path, inside: tuple[str, ...], name: str) -> Path:
    """The folder itself, or the one of its known subfolders, that holds any of the files."""
    if not folder.is_dir():
        found = "is a file, not a folder" if folder.exists() else "does not exist"
        raise DatasetError(f"{name}: {folder} {found}; give the folder that holds {file_names[0]}.")
    for candidate in (folder, *(folder / part for part in inside)):
        if any((candidate / file_name).is_file() for file_name in file_names):
            return candidate
    raise DatasetError(
        f"{name}: {folder} holds no {file_names[0]}; give the folder with the files as they are distributed."
    )
