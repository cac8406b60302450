"""The same files to Martlet and to the genuine server's syntax test: verdict, positions, digest.

The name of a file says what is expected:
`.valid` and `.invalid`: both say so;
`.later`: valid there, and here a part that is not supported yet;
`.stricter`: valid there, and refused here with a reason (docs/features/differs.tsv);
`.looser`: refused there, and valid here.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from config.errors import ConfigError
from config.load import read_file
from server.core.transform import mapping_problem

FOLDER = Path(__file__).parent / "config"
FILES = sorted(path.name for path in FOLDER.glob("*.conf"))
GENUINE = Path(sys.executable).parent / "nats-server"
ENVIRON = {
    "CONFIG_TEST_PORT": "4223",
    "CONFIG_TEST_NAME": "from-outside",
    "CONFIG_TEST_LIST": "[a, 'b c']",
    "CONFIG_TEST_CYCLE": "$CONFIG_TEST_CYCLE",
}
UNKNOWN = re.compile(r'\S+:\d+:\d+: unknown field ".*"')
DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


def genuine_says(name: str) -> tuple[bool, str]:
    done = subprocess.run(
        [GENUINE, "-t", "-c", name],
        cwd=FOLDER,
        env={**os.environ, **ENVIRON},
        capture_output=True,
        timeout=60,
        check=False,
    )
    return done.returncode == 0, done.stderr.decode("utf-8", "replace")


def we_say(name: str) -> tuple[bool, str]:
    try:
        loaded = read_file(name, ENVIRON, mapping_problem)
    except (ConfigError, OSError) as error:
        return False, str(error)
    return not loaded.warnings, "\n".join([loaded.digest, *map(str, loaded.warnings)])


def test_the_corpus_is_large() -> None:
    assert len(FILES) >= 120


@pytest.mark.peer
@pytest.mark.feature("2-019", "2-020", "3-019", "3-021", "3-023", "3-083")
@pytest.mark.parametrize("name", FILES)
def test_verdict_positions_and_digest(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(FOLDER)
    expected = name.split(".")[-2]
    genuine_valid, genuine_text = genuine_says(name)
    valid, text = we_say(name)
    assert genuine_valid == (expected not in ("invalid", "looser")), genuine_text
    assert valid == (expected in ("valid", "looser")), text
    if expected == "valid":
        assert DIGEST.findall(genuine_text) == DIGEST.findall(text)
    elif expected == "later":
        assert "not supported yet" in text
    # A part of the corpus's contract: the same unknown fields at the same places.
    genuine_lines = UNKNOWN.findall(genuine_text.replace("nats-server: ", ""))
    plain = [line for line in genuine_lines if "parsing" not in line]
    assert set(plain) <= set(UNKNOWN.findall(text))
