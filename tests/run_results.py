"""What runs of the same pipeline have in common, whatever happened to them on their way.

Left out are the log, the events, the lock, and what ``run.json`` and ``report.html`` themselves say
to be of one run: seconds, machines, and (in the page) whatever is marked ``data-varies``.
"""

import hashlib
import json
import re
from pathlib import Path

import pyarrow.parquet as pq

#: No results.
UNLIKE = {"log.txt", "events.jsonl", ".lock"}
#: Keys of ``run.json`` that are of one run, or checksums of what is.
_OF_ONE_RUN = {"machine", "machines", "checksum"}


def manifest(data: bytes) -> bytes:
    """What all runs have in their ``run.json``."""
    content = {k: v for k, v in json.loads(data).items() if k not in _OF_ONE_RUN}
    for stage in content["stages"].values():
        assert stage.pop("seconds") >= 0
        stage["files"].pop("report.html", None)
    return json.dumps(content, indent=1).encode()


def page(data: bytes) -> bytes:
    """What all runs have in their ``report.html``."""
    text, n = re.subn(r"(?s)<section data-varies>.*?</section>", "", data.decode())
    assert n == 1, f"{n} sections of the page say that they vary; one has the times"
    return text.encode()


def _table(file: Path) -> bytes:
    table = pq.read_table(file)
    return repr([table.schema, *(c.to_pylist() for c in table.columns)]).encode()


def compared(file: Path) -> bytes:
    """What is compared of a file of a run."""
    if file.suffix == ".parquet":
        return _table(file)
    data = file.read_bytes()
    return {"run.json": manifest, "report.html": page}.get(file.name, bytes)(data)


def results(folder: Path) -> dict[str, str]:
    """Checksums of what a reader of the results finds, by file."""
    files = [f for f in sorted(folder.rglob("*")) if f.is_file() and f.name not in UNLIKE]
    return {
        f.relative_to(folder).as_posix(): hashlib.sha256(compared(f)).hexdigest() for f in files
    }
