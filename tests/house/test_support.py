"""The page of supported ops is what the op suite has."""

from __future__ import annotations

from scripts.generate_support import PAGE, page


def test_the_page_of_supported_ops_is_fresh():
    assert PAGE.read_text() == page(), "run: python -m scripts.generate_support write"
