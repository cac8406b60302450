from tests import configuration_page


def test_configuration_md_is_what_the_tables_say() -> None:
    page = configuration_page.PAGE.read_text()
    assert page == configuration_page.render(), "stale: run `make docs`"
