"""What the composition root hands from the options to the rooms."""

from __future__ import annotations

from pathlib import Path

import pytest

from server.app import apply_to_broker
from server.auth.directory import Directory
from server.core._broker import Broker
from tests.unit.config_files import options


@pytest.mark.feature("1-089", "3-033")
@pytest.mark.parametrize(
    ("text", "is_retried"),
    [("", False), ("write_timeout: close", False), ("write_timeout: retry", True)],
)
def test_the_file_says_whether_a_late_write_is_tried_again(
    tmp_path: Path, text: str, is_retried: bool
) -> None:
    broker, asked = Broker(), options(tmp_path, text)
    apply_to_broker(asked, Directory(asked), broker)
    assert broker.write_retry is is_retried
