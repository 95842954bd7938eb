"""What tests of runs share."""

import pytest

from irt_dask.report import figures


@pytest.fixture(scope="module")
def without_pictures():
    """As for other tests, and for what a module shares."""
    with pytest.MonkeyPatch.context() as m:
        m.setattr(figures, "inline", lambda ax, alt, caption: figures.Image("", alt, caption, 1))
        yield
