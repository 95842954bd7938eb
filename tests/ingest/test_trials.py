"""Attempts of a person at an item, counted: against pandas, for each format."""

import numpy as np
import pandas as pd
import pytest

import irt_dask as irt
from irt_dask.errors import DataWarning, InputError


@pytest.fixture
def attempts():
    """Five models, q0 to q2 with three attempts, q3 with two; m2 lacks one at q1."""
    rng = np.random.default_rng(0)
    rows = [
        (f"m{i}", f"q{j}", t, int(rng.random() < 0.3 + 0.1 * j))
        for i in range(5)
        for j in range(4)
        for t in range(3 if j < 3 else 2)
    ]
    table = pd.DataFrame(rows, columns=["model", "question", "trial", "score"])
    table = table.sample(frac=1.0, random_state=1)
    lost = (table["model"] == "m2") & (table["question"] == "q1") & (table["trial"] == 2)
    return table[~lost]


def written(table, folder, kind):
    path = folder / f"log.{kind}"
    if kind == "csv":
        table.to_csv(path, index=False)
    elif kind == "jsonl":
        table.to_json(path, orient="records", lines=True)
    else:
        table.to_parquet(path, index=False, write_page_checksum=True)
    return path


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet"])
def test_attempts_are_counted(attempts, tmp_path, kind):
    path = written(attempts, tmp_path, kind)
    with pytest.warns(DataWarning, match="1 answers to 1 item"):
        found = irt.ingest(path, tmp_path / "store", trials="trial", rows_per_block=2)
    assert dict(zip(found.item_id, found.n_categories, strict=True)) == {
        "q0": 4, "q1": 4, "q2": 4, "q3": 3,
    }  # fmt: skip
    data = found.to_xarray()
    got = pd.DataFrame(
        data["response"].values, index=data["person_id"].values, columns=data["item_id"].values
    )
    by = attempts.groupby(["model", "question"])["score"].agg(["sum", "count"])
    for (model, question), row in by.iterrows():
        whole = row["count"] == (2 if question == "q3" else 3)
        assert got.loc[model, question] == (row["sum"] if whole else -1)
    found.verify()


def test_refused_rows_lie_beside_the_store(attempts, tmp_path):
    table = attempts.astype({"score": object})
    table.iloc[3, 3] = "timeout"
    path = written(table, tmp_path, "csv")
    with pytest.warns(DataWarning):
        found = irt.ingest(path, tmp_path / "s", trials="trial", on_error="quarantine")
    assert found.n_quarantined == 1
    assert "timeout" in (tmp_path / "s.quarantine.csv").read_text()


def test_shares_of_attempts(tmp_path):
    path = tmp_path / "shares.csv"
    path.write_text("model,doc_id,acc\na,1,.7\na,2,1\nb,1,0\nb,2,0.3\n")
    found = irt.ingest(path, tmp_path / "s", trials=10)
    assert found.n_categories == (11, 11)
    assert found.read_block(0).data.values.tolist() == [[7, 10], [0, 3]]
    with pytest.raises(InputError, match=r"a share right of n attempts: trials=n"):
        irt.ingest(path, tmp_path / "t")
    with pytest.raises(
        InputError, match=r"'\.7'; a response is the share right of 4 attempts: 0, 0.25, ... 1"
    ):
        irt.ingest(path, tmp_path / "t", trials=4)


def test_what_does_not_go_together_is_refused(attempts, tmp_path):
    path = written(attempts, tmp_path, "csv")
    with pytest.raises(InputError, match="categories= does not go together with trials="):
        irt.ingest(path, tmp_path / "s", trials="trial", categories=3)
    with pytest.raises(InputError, match="from 1 to 14"):
        irt.ingest(path, tmp_path / "s", trials=15)
    many = pd.concat([attempts.assign(trial=attempts["trial"] + 3 * k) for k in range(5)])
    path = written(many, tmp_path, "jsonl")
    with pytest.raises(InputError, match="15 attempts of one person"):
        irt.ingest(path, tmp_path / "s", trials="trial")
    assert not (tmp_path / "s").exists()
