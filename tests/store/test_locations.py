"""Places of runs as users write them: what is secret is refused and not repeated."""

import pytest

from memfluence.errors import InputError
from memfluence.store import locate


@pytest.mark.parametrize(
    "given",
    [
        "s3://name:hunter2@bucket/run",
        "s3://name:hunter2@bucket/../run",
        "s3://name:hunter2@/run",
        "s3://bucket/run?secret_key=hunter2",
        "s3://bucket/../run?session_token=hunter2",
        "gs://bucket/run?access_token=hunter2",
        "abfs://container@account/run?client_id=me&client_secret=hunter2",
        "az://container/run?account_key=hunter2",
    ],
)
def test_secrets_are_refused_and_not_repeated(given: str) -> None:
    with pytest.raises(InputError, match="A password does not belong into a URI") as refused:
        locate(given)
    assert "hunter2" not in str(refused.value)


def test_other_options_are_not() -> None:
    given = "s3://bucket/run?endpoint_override=keys.example:9000&scheme=http&anonymous=true"
    assert str(locate(given)) == given
    assert str(locate("abfs://container@account/run")) == "abfs://container@account/run"
