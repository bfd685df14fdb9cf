"""A dataset loaded by its name as `mf.run` does, and everything looked at that a run would look at."""

import numpy as np

from fuzzing.runs import refuse_hidden
from memfluence import datasets
from memfluence.errors import MemfluenceError


def load(spec: str) -> list[str]:
    """What is said against the data; none if they are taken."""
    try:
        found = datasets.load(spec)
        assert len(found.fingerprint) == 32
        for inputs, n in ((found.x_train, found.n_train), (found.x_test, found.n_test)):
            if isinstance(inputs, datasets.LazyImages):
                assert np.asarray(inputs).shape == inputs.shape
            assert len(inputs) == n > 0
        assert min(found.y_train.min(), found.y_test.min()) >= 0
        assert max(found.y_train.max(), found.y_test.max()) < found.n_classes == len(found.class_names)
        datasets.to_images(found.x_test, found.value_range, slice(0, 3))
    except MemfluenceError as error:
        refuse_hidden(error)
        return [str(error)]
    return [f"note: {note}" for note in found.notes]
