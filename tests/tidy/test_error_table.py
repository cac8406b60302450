from tests import error_table


def test_errors_py_is_what_the_table_says() -> None:
    assert error_table.MODULE.read_text() == error_table.render(), "stale: run `make docs`"
