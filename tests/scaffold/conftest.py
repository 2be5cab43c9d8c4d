"""Commands run in an empty folder, with coevo's own plugins."""

import pytest


@pytest.fixture(autouse=True)
def _here(in_empty_folder):
    pass
