"""Item banks: calibrated items in files, and on the scale of other items."""

from irt_dask.banks.files import read_items as read_items
from irt_dask.banks.files import write_items as write_items
from irt_dask.banks.places import check_new_path as check_new_path
