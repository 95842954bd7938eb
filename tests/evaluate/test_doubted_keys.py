"""Keys that are to be read again: which, in which order, by which numbers; shell and page."""

import html
import json
import re

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

import irt_dask as irt
from irt_dask.cli.main import cli
from irt_dask.errors import InputError
from irt_dask.evaluate import doubted_keys
from irt_dask.report.page import write_report


def answers(n=28, m=20, seed=19, wrong=6):
    """Options A to D of a class, its key, and a key that is wrong for one item of them."""
    rng = np.random.default_rng(seed)
    able, hard = rng.normal(size=n)[:, None], np.linspace(-2.5, 2.0, m)
    right = rng.random((n, m)) < 1.0 / (1.0 + np.exp(-1.5 * (able - hard)))
    key = rng.integers(0, 4, m)
    y = np.where(right, key, (key + rng.integers(1, 4, (n, m))) % 4).astype(np.int8)
    said = key.copy()
    if wrong is not None:
        said[wrong] = (key[wrong] + 1) % 4
    return y, said


def analysed(y, key):
    r = irt.from_array(y, item_id=[f"Q {j}" for j in range(y.shape[1])], categories=4)
    return irt.option_analysis(r, dict(zip(r.item_id, key.tolist(), strict=True)), labels="ABCD")


def test_a_wrong_key_of_a_class_comes_first_with_its_numbers():
    y, key = answers()
    found = analysed(y, key)
    doubts = doubted_keys.doubted_keys(found)
    assert len(doubts) > 1  # by chance, of items that few or nearly all can do
    first = doubts[0]
    assert (first.item, first.reasons) == ("Q 6", ())
    assert [d.against for d in doubts] == sorted((d.against for d in doubts), reverse=True)
    r = found["item_option_correlation"].values
    for d in doubts:
        j = int(d.item[2:])
        best, own = "ABCD".index(d.option.name), "ABCD".index(d.key.name)
        assert own == key[j]
        assert d.option.correlation == r[j, best] > r[j, own] == d.key.correlation
        assert d.option.share == np.mean(y[:, j] == best)
    line = doubted_keys.lines(doubts)[0]
    option, right = "ABCD"[(key[6] - 1) % 4], "ABCD"[key[6]]
    shares = [f"{100 * np.mean(y[:, 6] == 'ABCD'.index(c)):.0f}%" for c in (option, right)]
    numbers = [f"{r[6, 'ABCD'.index(c)]:.2f}".replace("0.", ".") for c in (option, right)]
    assert line == (
        f"'Q 6': {option} chosen by {shares[0]}, r {numbers[0]}; the key {right} by {shares[1]}, "
        f"r {numbers[1]}"
    )


def test_the_order_is_that_of_a_t_test_of_two_groups():
    """By SEs between who chose the option and who chose the key, of the SD of all persons."""
    y, key = answers()
    found = analysed(y, key)
    for d in doubted_keys.doubted_keys(found):
        j = int(d.item[2:])
        right = (y == key).astype(float) - (y == key).mean(axis=0)
        rest = (right.sum(axis=1) - right[:, j]) / (y.shape[1] - 1)
        of, own = (rest[y[:, j] == "ABCD".index(c.name)] for c in d[1:3])
        error = rest.std() * np.sqrt(1.0 / of.size + 1.0 / own.size)
        np.testing.assert_allclose(d.against, (of.mean() - own.mean()) / error, rtol=1e-6)


def test_what_is_surer_than_chance_comes_before():
    y, key = answers(n=1500, wrong=6)
    y[:, 3] = np.where(y[:, 3] == key[3], (key[3] + 1) % 4, y[:, 3])  # nobody is right
    doubts = doubted_keys.doubted_keys(analysed(y, key))
    reasons = {d.item: d.reasons for d in doubts}
    assert reasons["Q 6"] == ("better_option", "negative_key")
    assert "nobody_right" in reasons["Q 3"]
    assert {d.item for d in doubts[:2]} == {"Q 3", "Q 6"}
    said = doubted_keys.lines(doubts)
    nobody = next(line for line in said if line.startswith("'Q 3'"))
    assert f"the key {'ABCD'[key[3]]} by nobody" in nobody
    assert "(better_option, negative_key)" in next(x for x in said if x.startswith("'Q 6'"))


def test_of_many_the_first_are_written():
    doubts = doubted_keys.doubted_keys(analysed(*answers()))
    said = doubted_keys.lines(doubts[:1] * 1042)
    assert len(said) == 41
    assert said[-1] == "and 1,002 more"
    assert doubted_keys.headline(doubts[:1]).startswith("The key of 1 item is to be read again: ")


def test_labels_of_files():
    found = analysed(*answers())
    assert doubted_keys.labels_of(found.assign_attrs(labels="A,B,C,D")) == list("ABCD")
    with pytest.raises(InputError, match="has 4 options, and labels of 2"):
        doubted_keys.labels_of(found.assign_attrs(labels="A,B"))


def test_the_shell_and_the_page_name_the_same_keys_with_the_same_numbers(tmp_path):
    y, key = answers()
    names, letters = [f"Q {j}" for j in range(20)], np.array(list("ABCD"))
    table = pd.DataFrame(letters[y], columns=names, index=[f"p{i}" for i in range(28)])
    table.rename_axis("person").to_csv(tmp_path / "a.csv", sep=";")
    pd.DataFrame({"item": names, "key": letters[key]}).to_csv(tmp_path / "k.csv", index=False)
    words = ["options", str(tmp_path / "a.csv"), str(tmp_path / "k.csv"), "--options", "A,B,C,D"]
    ran = CliRunner().invoke(cli, [*words, "--out", str(tmp_path / "o.nc"), "--quiet"])
    assert ran.exit_code == 0, ran.output
    found = analysed(y, key)
    doubts = doubted_keys.doubted_keys(found)
    said = doubted_keys.lines(doubts)
    assert "\n".join(["", "", doubted_keys.headline(doubts), "", *said, ""]) in ran.output
    assert f"n read again     {len(doubts)}" in ran.output
    again = json.loads(CliRunner().invoke(cli, [*words, "--json", "--quiet"]).stdout)["read_again"]
    assert [row["item"] for row in again] == [d.item for d in doubts]
    assert again[0]["option_correlation"] == doubts[0].option.correlation
    right = irt.from_array((y == key).astype(np.int8), item_id=names)
    fit = irt.fit_marginal(right, prior="empirical", progress=False)
    kept = irt.banks.saved.read_bank(str(tmp_path / "o.nc"))
    write_report(tmp_path / "r.html", title="t", run=[], timings=[], marginal=fit,
                 results={"Options": kept})  # fmt: skip
    page = html.unescape((tmp_path / "r.html").read_text())
    assert re.findall(r"<li>('Q .*)</li>", page) == said
    assert doubted_keys.headline(doubts) in page
    for d in doubts:
        assert f"read_again (Options: {doubted_keys.numbers(d)})" in page


@pytest.mark.slow
def test_a_wrong_key_is_named_in_nearly_every_class():
    """What docs/fit.md says of 100 classes; a class is made of its seed alone."""
    named = first = 0
    for seed in range(100):
        ids = [d.item for d in doubted_keys.doubted_keys(analysed(*answers(seed=seed)))]
        named, first = named + ("Q 6" in ids), first + (ids[:1] == ["Q 6"])
    assert (named, first) == (98, 89)
