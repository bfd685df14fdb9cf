"""How images that stay in their files (`imagenet:`, `folder:?lazy=true`) reach a network: no part of its identity."""

from dataclasses import dataclass
from typing import ClassVar

from memfluence.errors import LearnerError
from memfluence.learners._cores import available_cores
from memfluence.learners.settings import is_integer

__all__ = ["ImageLoading"]

_WAYS = ("auto", "table", "stream")


@dataclass(frozen=True)
class ImageLoading:
    """Settings that change how long a model takes and what memory it needs, and not one bit of it."""

    name: ClassVar[str] = "a network"  # in messages about settings

    # Processes that decode images while the model trains; -1 for one on every core that this process may use, 0 to
    # decode in the training process itself.
    decode_workers: int = -1
    # "table": all images are decoded once and stay on the device. "stream": each batch is decoded as it is needed.
    # "auto": a table where it takes no more than half of the device's free memory.
    images: str = "auto"

    def __post_init__(self) -> None:
        if not is_integer(self.decode_workers, -1):
            raise LearnerError(
                f"the setting 'decode_workers' must be an integer of at least -1; got {self.decode_workers!r}."
            )
        if self.images not in _WAYS:
            raise LearnerError(f"the setting 'images' must be one of {', '.join(_WAYS)}; got {self.images!r}.")

    @property
    def workers(self) -> int:
        if self.decode_workers >= 0:
            return self.decode_workers
        return available_cores()
