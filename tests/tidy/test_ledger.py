from tests import ledger


def test_features_md_is_what_the_markers_say() -> None:
    assert ledger.LEDGER.read_text() == ledger.render(), "stale: run `make ledger`"
