"""The store: immutable Parquet segments and one `run.json`, here or elsewhere. The only thing that lasts."""

from memfluence.store.cache import known_data, remember_data
from memfluence.store.index import INDEXED
from memfluence.store.parquet import pack, read_columns, unpack
from memfluence.store.places import (
    Location,
    Uri,
    file_errors,
    folder_for,
    is_running,
    locate,
    refuse_uri,
    this_process,
    write_whole,
)
from memfluence.store.run_file import FORMAT, RUN_FILE, RunInfo, differences, is_run, other_inputs, segment_columns
from memfluence.store.segments import Damage, DamagedSegmentError, Rows, join_rows, versions_in
from memfluence.store.store import Scan, TrialStore
from memfluence.store.unfinished import CheckpointFiles, StoredCheckpoint
from memfluence.store.writer import SegmentWriter

__all__ = [
    "FORMAT",
    "INDEXED",
    "RUN_FILE",
    "CheckpointFiles",
    "Damage",
    "DamagedSegmentError",
    "Location",
    "Rows",
    "RunInfo",
    "Scan",
    "SegmentWriter",
    "StoredCheckpoint",
    "TrialStore",
    "Uri",
    "differences",
    "file_errors",
    "folder_for",
    "is_run",
    "is_running",
    "join_rows",
    "known_data",
    "locate",
    "other_inputs",
    "pack",
    "read_columns",
    "refuse_uri",
    "remember_data",
    "segment_columns",
    "this_process",
    "unpack",
    "versions_in",
    "write_whole",
]
