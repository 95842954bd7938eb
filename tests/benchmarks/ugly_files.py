"""What is made of files as they come: a table of the file, what was typed, and what was said.

    python tests/benchmarks/ugly_files.py [word of a name]

The files are those of ``tests/ingest/ugly.py``, which a test compares with what must come of them.
"""

import os
import shlex
import sys
import tempfile
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "ingest"))

from ugly import CASES

import irt_dask as irt
from irt_dask.cli import main


def said(case, folder):
    """Type it; return what was said, and in a line what the store is."""
    case.write(folder)
    os.chdir(folder)
    sys.argv = ["irt-dask", "ingest", case.file, "s", *shlex.split(case.typed)]
    with redirect_stderr(StringIO()) as err, redirect_stdout(StringIO()):
        try:
            main()
        except SystemExit as ended:
            return f"[exit code {ended.code}] {err.getvalue().strip()}"
    r = irt.open_responses("s")
    persons = ", ".join(r.person_ids(0))
    items = ", ".join(r.item_id[:6]) + (", ..." if r.n_items > 6 else "")
    return f"{err.getvalue()}{r.n_persons} persons ({persons}) x {r.n_items} items ({items})"


def main_table():
    """Print a paragraph per file."""
    words = sys.argv[1:]
    for k, case in enumerate((c for c in CASES if all(w in c.name for w in words)), 1):
        first = case.data.split(b"\n")[0][:60]
        with tempfile.TemporaryDirectory() as folder:
            text = said(case, Path(folder))
        print(f"{k:2} {case.name}: {first!r}{' ...' if len(case.data) > 60 else ''}")
        print(f"   $ irt-dask ingest {case.file} s {case.typed}".rstrip())
        print("\n".join(f"   {line}" for line in text.splitlines()), end="\n\n")


if __name__ == "__main__":
    main_table()
