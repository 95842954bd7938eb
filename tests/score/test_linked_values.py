"""Plausible values with a link's constants drawn in; false-alarm rates are for a fresh seed."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from items import bank, probability, respond
from parts import csr_of
from scipy.special import expit
from scipy.stats import norm

import irt_dask as irt
from irt_dask.errors import DataWarning, InputError
from irt_dask.items.link_constants import LinkConstants, link_constants
from irt_dask.kernels.base import keyed_random
from irt_dask.score.linked import Linked, _drawn

M = 6
A, B = 1.25, 0.3
ERRORS = {"A_se": 0.06, "B_se": 0.08, "AB_covariance": 0.0021}
RNG = np.random.default_rng(4)
SLOPES, PLACES = RNG.uniform(0.8, 1.5, 12), RNG.normal(0.3, 1, 12)


def linked_items(**attrs):
    """Items as link returns them, on the scale of bank_a, with its attributes."""
    known = {"A": A, "B": B, "error": "jackknife", "n_units": 20} | ERRORS
    return bank(SLOPES, PLACES).assign_attrs(known | attrs)


LINK = linked_items()
Y = respond(RNG, RNG.normal(0.4, 1.2, 300), SLOPES, -SLOPES * PLACES, missing=0.1)
V = np.array([[ERRORS["A_se"] ** 2, ERRORS["AB_covariance"]],
              [ERRORS["AB_covariance"], ERRORS["B_se"] ** 2]])  # fmt: skip


def values(y=None, items=LINK, n=M, **options):
    y = irt.from_array(Y) if y is None else y
    return irt.score(y, items, n_plausible=n, progress=False, **options)


def drawn(scores):
    return np.stack([scores["link_slope"].values, scores["link_shift"].values])


def random_links(n, scale=1.0):
    """Links with any covariance."""
    rng = np.random.default_rng(9)
    for _ in range(n):
        root = scale * rng.normal(size=(2, 2)) * [[0.05], [0.1]]
        yield LinkConstants(rng.uniform(0.7, 1.4), rng.normal(), root @ root.T, "jackknife", 20)


# --- what is drawn --------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [3, 4, 5, 10, 31])
def test_draws_have_the_mean_and_by_rubins_rule_the_covariance_of_the_link(n):
    for link in random_links(20):
        x = _drawn([link], n)[:, 0]
        np.testing.assert_allclose(x.mean(axis=0), [link.slope, link.shift], atol=1e-14)
        np.testing.assert_allclose((1 + 1 / n) * np.cov(x.T), link.covariance, atol=1e-14)
    flat = LinkConstants(1.0, 0.2, np.diag([0.0, 0.01]), "jackknife", 9)  # of a 1PL: A is known
    x = _drawn([flat], n)[:, 0]
    assert np.all(x[:, 0] == 1.0)
    np.testing.assert_allclose((1 + 1 / n) * x[:, 1].var(ddof=1), 0.01)


def test_draws_of_several_links_are_uncorrelated():
    x = _drawn(list(random_links(3)), 7).reshape(7, 6)
    v = 8 / 7 * np.cov(x.T)
    for i, link in enumerate(random_links(3)):
        own = slice(2 * i, 2 * i + 2)
        np.testing.assert_allclose(v[own, own], link.covariance, atol=1e-14)
        v[own, own] = 0.0
    np.testing.assert_allclose(v, 0.0, atol=1e-14)


def test_draws_are_turned_at_random():
    """Over 3,000 links: each value's z has mean 0 and variance (M - 1) / (M + 1), and with what
    imputation makes of values, whatever it is, no covariance on average; 4.5 standard errors of
    20 numbers, a false alarm in 7,000."""
    n, sets = 5, 3000
    z = np.empty((sets, n, 2))
    for i in range(sets):  # nearly the same links
        v = np.diag([0.01, 0.01]) * (1 + i * 1e-9)
        z[i] = (_drawn([LinkConstants(1.0, 0.0, v, "jackknife", 20)], n)[:, 0] - [1, 0]) / 0.1
    assert np.abs(z.mean(axis=0) / (z.std(axis=0) / sets**0.5)).max() < 4.5
    square = z**2
    apart = square.mean(axis=0) - (n - 1) / (n + 1)
    assert np.abs(apart / (square.std(axis=0) / sets**0.5)).max() < 4.5
    q = np.array([0.3, -1.0, 0.2, 0.9, 2.0])
    total = (q[:, None] + z).var(axis=1, ddof=1) * (1 + 1 / n)
    known = q.var(ddof=1) * (1 + 1 / n) + 1.0  # imputation as ever, and the link's variance
    assert np.abs((total.mean(axis=0) - known) / (total.std(axis=0) / sets**0.5)).max() < 4.5


def test_the_linking_error_of_a_mean_is_that_of_trend_and_of_an_sd_that_of_its_slope():
    """Values that know abilities: Rubin's between-variance is the link's alone."""
    theta = np.random.default_rng(2).normal(0.5, 1.1, 400)
    link = link_constants(LINK, "x")
    moved = Linked((link,), _drawn([link], M), (0,)).moved(np.tile(theta[:, None, None], (1, M, 1)))
    frame = pd.DataFrame(moved[..., 0], columns=[f"pv{m}" for m in range(M)])
    frame = frame.assign(person_linking_error=0.1, zone=np.arange(400) // 20 + 1,
                         unit=np.arange(400) % 2, high=theta > 0.5)  # fmt: skip
    design = irt.Replicates.from_zones("jk2", "zone", "unit", n_zones=20)
    options = {"replicates": design, "by": "high", "gaps": "high", "statistics": ["mean", "sd"]}
    own = irt.tabulate(frame, "pv*", **options)
    plain = irt.tabulate(frame.assign(pv=theta), "pv", **options)
    known = irt.trend(plain.assign(variable="pv*"), plain.assign(variable="pv*"),
                      linking_error=LINK)  # fmt: skip
    assert (known["se_linking"] > 0).all()  # means, SDs and their gaps
    np.testing.assert_allclose(own["se_imputation"], known["se_linking"], rtol=1e-12)
    np.testing.assert_allclose(own["estimate"], plain["estimate"], atol=1e-12)
    assert set(own["linking"]) == {"drawn"}


# --- values ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"prior": "population"}, {"method": "wle"}])
def test_values_are_those_without_a_link_moved_by_its_draws(options):
    with_link, without = values(linking=LINK, **options), values(**options)
    slope, shift = drawn(with_link)
    by_hand = slope / A * (without["person_plausible_value"].values - B) + shift
    assert np.array_equal(by_hand, with_link["person_plausible_value"].values)
    assert np.array_equal(with_link["person_ability"], without["person_ability"])
    assert with_link.attrs["linking_error"] == "drawn into the plausible values"
    assert "linking_error" not in without.attrs
    np.testing.assert_allclose((1 + 1 / M) * np.cov(slope, shift), V, atol=1e-15)


def test_values_are_quantiles_of_posteriors_by_items_that_were_linked_otherwise():
    """By summation on a fine grid: items and prior on the scale by A_m and B_m, the person's u."""
    found = values(linking=LINK, seed=3)
    own_a, own_b = SLOPES * A, (PLACES - B) / A  # before the link
    for m, (slope, shift) in enumerate(drawn(found).T):
        u = keyed_random.uniforms(keyed_random.key(3, "plausible", m), 0, 5)[:, 0]
        t = np.linspace(-9, 9, 20_001)
        a, b = own_a / slope, slope * own_b + shift
        prior = norm.pdf(t, shift - slope / A * B, slope / A)  # N(0, 1) where the link is by A, B
        right = probability(t, a, -a * b)
        for i in range(5):
            p = np.where(Y[i] < 0, 1.0, np.where(Y[i] == 1, right, 1 - right)).prod(axis=1)
            f = np.cumsum(prior * p)
            value = found["person_plausible_value"].values[i, m]
            assert abs(np.interp(value, t, f / f[-1]) - u[i]) < 1e-3


def test_all_who_are_scored_by_a_link_share_its_draws():
    some = values(linking=LINK)
    others = values(irt.from_array(Y[:50]), linking=LINK, seed=8)
    np.testing.assert_array_equal(drawn(some), drawn(others))
    assert not np.isin(drawn(values(linking=LINK, n=7)), drawn(some)).any()
    assert not np.isin(drawn(values(linking=linked_items(B_se=0.0801))), drawn(some)).any()


def test_blocks_layouts_and_folders_do_not_matter(bits, tmp_path):
    y = irt.from_array(Y)
    options = {"linking": LINK, "seed": 2, "prior": "population"}
    want = values(y, **options)
    for other in (irt.from_array(Y, rows_per_block=7),
                  irt.from_array(csr_of(Y), observed="stored", rows_per_block=110)):  # fmt: skip
        assert bits(values(other, **options)) == bits(want)
    stored = values(irt.from_array(Y, rows_per_block=110), store=tmp_path / "s", **options)
    assert stored.attrs["n_blocks_scored"] == 3
    table = pd.read_parquet(tmp_path / "s")
    assert table.columns.tolist() == [
        "person_id", "person_ability", "person_ability_sd", "person_linking_error", "n_responses",
        "sum_score", *(f"pv{m + 1}" for m in range(M)),
    ]  # fmt: skip
    np.testing.assert_array_equal(table.filter(like="pv"), want["person_plausible_value"])
    np.testing.assert_array_equal(table["person_linking_error"], want["person_linking_error"])
    said = json.loads((tmp_path / "s" / "_scores.json").read_text())
    assert said["linking_error"] == "drawn into the plausible values"
    assert said["link_slope"] == want["link_slope"].values.tolist()
    # another link makes all files anew, and values without one are not put in their place
    again = values(irt.from_array(Y, rows_per_block=110), store=tmp_path / "s",
                   **options | {"linking": linked_items(A_se=0.07)})  # fmt: skip
    assert again.attrs["n_blocks_scored"] == 3
    with pytest.raises(InputError, match=r"column.* person_linking_error, which these opti"):
        values(irt.from_array(Y, rows_per_block=110), store=tmp_path / "s", prior="population")


def test_workers_do_not_matter(bits, client):
    y, options = irt.from_array(Y, rows_per_block=40), {"linking": LINK, "prior": "population"}
    assert bits(values(y, client=client, **options)) == bits(values(irt.from_array(Y), **options))


def test_the_linking_error_of_a_person_is_the_spread_of_an_ability_under_the_draws():
    found = values(linking=LINK)
    slope, shift = drawn(found)
    ability = found["person_ability"].values[:, None]
    spread = (slope / A * (ability - B) + shift).var(axis=1, ddof=1) * (1 + 1 / M)
    np.testing.assert_allclose(found["person_linking_error"] ** 2, spread, rtol=1e-10)


def test_each_value_has_items_of_its_own_besides():
    g = np.random.default_rng(1)
    sets = {"item_discrimination_draw": SLOPES * np.exp(g.normal(0, 0.05, (M, 12))),
            "item_intercept_draw": -SLOPES * PLACES + g.normal(0, 0.05, (M, 12))}  # fmt: skip
    items = LINK.assign({name: (("draw", "items"), x) for name, x in sets.items()})
    found, without = (values(items=items, n_item_draws=M, **x) for x in ({"linking": LINK}, {}))
    slope, shift = drawn(found)
    np.testing.assert_array_equal(
        found["person_plausible_value"],
        slope / A * (without["person_plausible_value"].values - B) + shift,
    )
    assert not np.array_equal(without["person_plausible_value"], values()["person_plausible_value"])


# --- domains --------------------------------------------------------------------------------------

IDS = [f"q{j}" for j in range(12)]
DOMAINS = {"maths": IDS[:6], "reading": IDS[6:]}
BOTH = {"both": {"maths": 0.25, "reading": 0.5}}


@pytest.fixture(scope="module")
def conditioned():
    """Responses and a population model of two domains, by the items of the link."""
    rng = np.random.default_rng(3)
    x, of = rng.normal(size=600), np.arange(12) // 6
    theta = 0.5 * x[:, None] + rng.multivariate_normal([0.0, 0.2], [[1.0, 0.5], [0.5, 0.9]], 600)
    right = rng.random((600, 12)) < expit(SLOPES * (theta[:, of] - PLACES))
    y = irt.from_array(right.astype(np.int8), persons={"x": x}, item_id=IDS)
    items = bank(SLOPES, PLACES, item_id=IDS).assign_attrs(LINK.attrs)
    return y, items, irt.fit_population(y, items, covariates="x", domains=DOMAINS, progress=False)


def of_domains(conditioned, linking, n=M, **options):
    y, items, population = conditioned
    return values(y, items, n, prior=population, composites=BOTH, linking=linking, **options)


def test_domains_have_links_of_their_own_and_composites_both(conditioned, tmp_path):
    items = conditioned[1]
    other = {"A": 0.9, "B": -0.2, "A_se": 0.03, "B_se": 0.05, "AB_covariance": -0.001}
    links = {"reading": items.assign_attrs(other), "maths": items}
    found, without = of_domains(conditioned, links), of_domains(conditioned, None)
    slope, shift = found["link_slope"].values, found["link_shift"].values  # (values, domains)
    before = without["person_domain_plausible_value"].values
    after = np.stack([
        slope[:, 0] / A * (before[..., 0] - B) + shift[:, 0],
        slope[:, 1] / 0.9 * (before[..., 1] + 0.2) + shift[:, 1],
    ], axis=-1)  # fmt: skip
    after = np.concatenate([after, 0.25 * after[..., [0]] + 0.5 * after[..., [1]]], axis=-1)
    np.testing.assert_allclose(found["person_domain_plausible_value"], after, atol=1e-14)
    np.testing.assert_allclose(np.cov(slope[:, 0], slope[:, 1])[0, 1], 0.0, atol=1e-15)
    ability = without["person_domain_ability"].values
    at = np.stack([slope[:, 0] / A * (ability[:, [0]] - B) + shift[:, 0],
                   slope[:, 1] / 0.9 * (ability[:, [1]] + 0.2) + shift[:, 1]], axis=-1)  # fmt: skip
    at = np.concatenate([at, at @ [[0.25], [0.5]]], axis=-1)
    spread = at.var(axis=1, ddof=1) * (1 + 1 / M)
    np.testing.assert_allclose(found["person_linking_error"] ** 2, spread, rtol=1e-9)
    of_domains(conditioned, links, store=tmp_path / "s")
    table = pd.read_parquet(tmp_path / "s")
    for k, name in enumerate(("maths", "reading", "both")):
        third = found["person_domain_plausible_value"][:, 2, k]
        np.testing.assert_array_equal(table[f"pv3_{name}"], third)
        of_link = table[f"person_linking_error_{name}"]
        np.testing.assert_array_equal(of_link, found["person_linking_error"][:, k])
    said = json.loads((tmp_path / "s" / "_scores.json").read_text())
    assert said["link_shift"] == shift.tolist()


def test_one_link_is_of_all_domains_and_a_domain_may_have_none(conditioned, tmp_path):
    one = of_domains(conditioned, conditioned[1], n=3)  # as many as one link needs
    np.testing.assert_array_equal(one["link_slope"][:, 0], one["link_slope"][:, 1])
    items, before = conditioned[1], of_domains(conditioned, None)
    slope, shift = one["link_slope"].values[:, 0], one["link_shift"].values[:, 0]
    ability = before["person_domain_ability"].values
    at = slope[:, None] / A * (ability[:, None, :2] - B) + shift[:, None]
    both = (at @ [0.25, 0.5]).var(axis=1, ddof=1) * (1 + 1 / 3)
    np.testing.assert_allclose(one["person_linking_error"][:, 2] ** 2, both, rtol=1e-9)
    found = of_domains(conditioned, {"maths": items}, store=tmp_path / "s")
    assert np.isnan(found["link_slope"][:, 1]).all()
    text = (tmp_path / "s" / "_scores.json").read_text()
    said = json.loads(text, parse_constant=pytest.fail)  # NaN is no JSON
    assert said["link_slope"] == [[a, None] for a, _ in found["link_slope"].values]
    table = pd.read_parquet(tmp_path / "s")
    marks = [c for c in table if c.startswith("person_linking_error")]
    assert marks == ["person_linking_error_maths", "person_linking_error_both"]
    plain = before["person_domain_plausible_value"].values
    np.testing.assert_array_equal(table["pv2_reading"], plain[:, 1, 1])
    # tables know which is which
    wanted = {name: f"pv*_{name}" for name in ("maths", "reading", "both")}
    made = irt.tabulate(tmp_path / "s", wanted, statistics=["mean", "weight"], progress=False)
    assert made["linking"].tolist() == ["drawn", "", "", "", "drawn", ""]


# --- what is refused ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "change, text",
    [
        ({"n": 0}, r"drawn into plausible values, and n_plausible=0: A and B of 1 link need 3 val"),
        ({"n": 2}, "n_plausible=2: A and B of 1 link need 3 values at least"),
        ({"linking": 3.5}, "linking= is a float and no link: give the Dataset that irt.link"),
        ({"linking": bank(SLOPES, PLACES)}, "linking= is a Dataset and no link"),
        ({"linking": LINK.drop_attrs().assign_attrs(A=1.0, B=0.0)}, "is a link without errors"),
        ({"linking": linked_items(A_se=0.26)}, "A = 1.25 with a standard error of 0.26: above 0.2"),
        ({"linking": linked_items(AB_covariance=0.1)}, "covariance 0.1, which no link has"),
        ({"linking": linked_items(B_se=np.nan)}, "which no link has"),
        ({"linking": linked_items(A_se=0.0, B_se=0.0, AB_covariance=0.0)}, "has errors of 0"),
        ({"linking": {"maths": LINK}}, "names 'maths', and there is one ability: give one link"),
        ({"items": bank(SLOPES * A, (PLACES - B) / A)}, "items are on the scale of bank_b, before"),
        ({"items": bank(SLOPES * A * 1.01, (PLACES - B) / A)}, "items are on the scale of bank_b"),
        (
            {"linking": LINK.assign_coords(item_id=[f"other{j}" for j in range(12)])},
            "linking= has none of the items that are scored",
        ),
    ],
)
def test_links_that_do_not_go_with_the_scores_are_refused(change, text):
    with pytest.raises(InputError, match=text):
        values(**{"linking": LINK} | change)


def test_links_of_domains_are_named_and_need_values(conditioned):
    items = conditioned[1]
    with pytest.raises(InputError, match="linking= names 'art', and there are 'maths', 'reading'"):
        of_domains(conditioned, {"art": items})
    other = items.assign_attrs(A_se=0.05)
    with pytest.raises(InputError, match="n_plausible=4: A and B of 2 links need 5 values"):
        of_domains(conditioned, {"maths": items, "reading": other}, n=4)
    of_domains(conditioned, {"maths": items, "reading": items}, n=4)  # the same link
    with pytest.raises(InputError, match=r"linking= of 'reading' has A = 1.25 with a standard"):
        of_domains(conditioned, {"maths": items, "reading": items.assign_attrs(A_se=0.5)})


def test_two_abilities_are_on_no_link():
    known = {"item_loading": (("items", "latent_dims"), np.stack([SLOPES, SLOPES[::-1]], axis=1)),
             "item_intercept": ("items", PLACES)}  # fmt: skip
    with pytest.raises(InputError, match="linking= is of one ability, and these items measure two"):
        values(items=xr.Dataset(known, {"item_id": [str(j) for j in range(12)]}), linking=LINK)


@pytest.mark.parametrize(
    "change, text",
    [
        ({"linking": linked_items(error="delta")}, "error='delta', which holds the sample of pers"),
        ({"n": 21}, "by 20 units, 19 degrees of freedom, and tables of 21 values .* by 20"),
        (
            {"linking": LINK.isel(items=slice(4))},
            "8 of 12 items are not in the link .* are moved all the same",
        ),
        (
            {"items": bank(SLOPES, PLACES + np.eye(12)[0] * 0.3)},
            "1 of 12 items have other parameters in the link, by up to 0.[0-9]+ of the highest",
        ),
    ],
)
def test_what_tables_cannot_know_is_said(change, text):
    with pytest.warns(DataWarning, match=text) as caught:
        values(**{"linking": LINK} | change)
    assert {w.filename for w in caught} == {__file__}
