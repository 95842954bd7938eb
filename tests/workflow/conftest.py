"""What tests of runs share."""

import pytest

from irt_dask.report import figures


@pytest.fixture(scope="module")
def no_pictures():
    """Pictures take most of the time of a small run, and are of no interest to most tests."""
    with pytest.MonkeyPatch.context() as m:
        m.setattr(figures, "inline", lambda ax, alt, caption: figures.Image("", alt, caption, 1))
        yield
