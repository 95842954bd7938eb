"""Columns item@level of long files, from every format; and what does not go together with them."""

import json

import pandas as pd
import pytest

import irt_dask as irt
from irt_dask.errors import InputError

ROWS = pd.DataFrame(
    {
        "person": list("aaabbc"),
        "item": list("xxyxyx"),
        "rater": ["r1", "r2", "r1", "r1", "r2", "r2"],
        "day": ["1", "1", "2", "2", "1", "1"],
        "response": [0, 2, 1, 1, 0, 2],
    }
)


def written(rows, path):
    if path.suffix == ".csv":
        rows.to_csv(path, index=False)
    elif path.suffix == ".parquet":
        rows.to_parquet(path, index=False)
    else:
        path.write_text("\n".join(json.dumps(r) for r in rows.to_dict("records")))
    return path


@pytest.mark.parametrize("ending", ["csv", "parquet", "jsonl"])
def test_levels_make_columns(tmp_path, ending):
    path = written(ROWS, tmp_path / f"f.{ending}")
    got = irt.ingest(path, tmp_path / "one", facets="rater", categories={"x": 3})
    assert got.item_id == ("x@r1", "x@r2", "y@r1", "y@r2")
    assert got.n_categories == (3, 3, 2, 2)
    expected = [[0, 2, 1, -1], [1, -1, -1, 0], [-1, 2, -1, -1]]
    assert got.read_block(0).data.values.tolist() == expected
    two = irt.ingest(
        path, tmp_path / "two", columns={"facets": ["rater", "day"]}, categories={"x": 3}
    )
    assert two.item_id == ("x@r1@1", "x@r2@1", "y@r1@2", "x@r1@2", "y@r2@1")


@pytest.mark.parametrize("ending", ["csv", "parquet", "jsonl"])
@pytest.mark.parametrize("level", ["r@1", ""])
def test_levels_that_are_none_are_bad_rows(tmp_path, ending, level):
    rows = ROWS.assign(rater=["r1", level, "r1", "r1", "r2", "r2"])
    path = written(rows, tmp_path / f"f.{ending}")
    with pytest.raises(InputError, match=r"rater"):
        irt.ingest(path, tmp_path / "s", facets=["rater"], categories=3)


@pytest.mark.parametrize(
    "options, said",
    [
        ({"categories": "data"}, "categories='data'"),
        ({"reverse": ["x"], "categories": 3}, "reverse="),
        ({"key": {"x": "1", "y": "0"}}, "key="),
        ({"null_categories": "collapse", "categories": 3}, "null_categories='collapse'"),
        ({"facets": ["day", "day"], "categories": 3}, "is twice"),
        ({"facets": ["nothing"], "categories": 3}, "no such column"),
        ({"shape": "wide", "categories": 3}, "wide"),
    ],
)
def test_what_does_not_go_together_is_refused(tmp_path, options, said):
    path = written(ROWS, tmp_path / "f.csv")
    with pytest.raises(InputError, match=said):
        irt.ingest(path, tmp_path / "s", **{"facets": ["rater"], **options})
