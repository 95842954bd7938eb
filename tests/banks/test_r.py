"""What is written for R, read by R: where there is one."""

import shutil
import subprocess

import numpy as np
import pytest

import irt_dask as irt

RSCRIPT = shutil.which("Rscript")
CODE = """
bank <- read.csv("bank.csv")
scores <- read.csv("scores.csv")
cat(sprintf("%.17g", c(bank$a, bank$se_a, bank$b)), sep = "\\n")
cat(sprintf("\\n%.17g", weighted.mean(scores$person_ability, 1 / scores$person_ability_sd^2)))
"""


@pytest.mark.skipif(RSCRIPT is None, reason="there is no Rscript here")
def test_r_reads_banks_and_scores(tmp_path):
    """The numbers that the tutorial plots, to the last digits."""
    fit = irt.fit_marginal(irt.load_lsat())
    irt.write_items(fit, tmp_path / "bank.csv")
    scores = irt.score(irt.load_lsat(), fit)
    scores[["person_ability", "person_ability_sd"]].to_dataframe().to_csv(tmp_path / "scores.csv")
    done = subprocess.run(
        [RSCRIPT, "-e", CODE], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=True
    )
    names = ("discrimination", "discrimination_se", "difficulty")
    wanted = np.concatenate([fit[f"item_{name}"].values for name in names])
    weight = 1.0 / scores["person_ability_sd"].values ** 2
    mean = np.average(scores["person_ability"].values, weights=weight)
    np.testing.assert_allclose(
        np.array(done.stdout.split(), dtype=float), [*wanted, mean], rtol=1e-12
    )
