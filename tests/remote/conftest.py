"""A bucket, and commands that find it."""

from collections.abc import Iterator

import pytest

from memfluence.store import places
from remote.s3_server import Storage


@pytest.fixture(scope="module")
def storage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Storage]:
    """The environment names the proxy, for this process and for those that it starts, and a cache of their own."""
    storage = Storage()
    with pytest.MonkeyPatch.context() as patch:
        for name, value in storage.environment.items():
            patch.setenv(name, value)
        patch.setenv("MEMFLUENCE_CACHE", str(tmp_path_factory.mktemp("cache")))
        places._remote.cache_clear()
        yield storage
    places._remote.cache_clear()
    storage.stop()
