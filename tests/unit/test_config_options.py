"""Options are frozen, complete and never show a secret."""

import pytest

from config.options import AuthOptions, Options, Secret, User


def test_options_are_frozen() -> None:
    with pytest.raises(AttributeError):
        Options().port = 1  # type: ignore[misc]


def test_secret_shows_itself_only_when_asked() -> None:
    secret = Secret("s3cr3t")
    shown = [repr(secret), str(secret), f"{secret}", f"{secret!r:>3}", "%s" % secret]  # noqa: UP031
    assert all("s3cr3t" not in text for text in shown)
    assert secret.reveal() == "s3cr3t"
    assert type(secret.reveal()) is str
    assert secret.encode() == b"s3cr3t"
    assert secret == "s3cr3t"
    assert not Secret("")


def test_repr_of_options_hides_secrets() -> None:
    options = Options(
        auth=AuthOptions(token=Secret("tok-1"), users=(User(name="a", password=Secret("pw-1")),))
    )
    assert "tok-1" not in repr(options)
    assert "pw-1" not in repr(options)
