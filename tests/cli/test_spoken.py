"""Messages speak the language of whoever reads them: keywords in Python, options in the shell."""

import ast
import inspect
import json
import re
import sys
from pathlib import Path

import pytest

import irt_dask as irt
from irt_dask.cli import banks, calibrate, data, examine, main, residuals, spoken, work
from irt_dask.cli.spoken import list_of, typed


@pytest.mark.parametrize(
    "text, expected",
    [
        (
            "say missing=['9'], else recode={'9': 'right'} or 'wrong'",
            "say --missing 9, else --recode 9=right or 'wrong'",
        ),
        ("missing=['a b', '9']; exclude='q*'.", "--missing 'a b' --missing 9; --exclude 'q*'."),
        (
            "columns={'person': ..., 'items': ['q1', 'a,b']} or columns={'person': NAME}",
            "--column person=... --column 'items=q1,\"a,b\"' or --column person=NAME",
        ),
        ("no weights (nor has persons=), and", "no weights (nor has --persons), and"),
        ("columns= gives 'q' two roles", "--column gives 'q' two roles"),
        ("rows_per_block=0 must be", "--rows-per-block 0 must be"),
        ("missing=-9, key='k.csv'", "--missing -9, --key k.csv"),
        ("on_error='quarantine'", "--on-error quarantine"),
        ("the value 'missing=[9]' or x.missing=3 or --missing=3", None),  # of others: left alone
        ("n=3, dask=2, client=None", None),
        ("missing=['it is", None),  # cut short
        ("/data/key=a/f.csv, line 2: no", None),  # a path
    ],
)
def test_keywords_become_options(text, expected):
    assert typed(text, data.ingest) == (text if expected is None else expected)
    assert typed(text, None) == text


def test_each_command_has_its_own_options():
    text = "say missing=['9'] and n_draws=100"
    assert typed(text, calibrate.calibrate) == "say missing=['9'] and --draws 100"
    assert typed(text, work.run) == 'say missing = ["9"] and draws = 100'
    assert typed(text, work.score) == text
    assert typed("columns={'items': ['q*']}", work.run) == 'columns = { items = ["q*"] }'


@pytest.mark.parametrize(
    "text, command, expected",
    [
        ("unknown_items='ignore'", work.score, "--items bank"),
        ("unknown_items='ignore'", work.run, 'items = "bank"'),
        ("use standard_errors=False", calibrate.calibrate, "use --no-standard-errors"),
        ("standard_errors=True: 9", calibrate.calibrate, "--standard-errors: 9"),
        ("standard_errors=False", work.run, "standard_errors = false"),
        ("use prior='groups'", work.run, 'use prior = "groups"'),
        (
            "reference_group has no meaning with fixed_items; raise max_iterations.",
            calibrate.calibrate,
            "--reference-group has no meaning with --fixed-items; raise --max-iterations.",
        ),
        ("marginal.fixed_items and fixed_items.csv, 'fixed_items'", calibrate.calibrate, None),
        ("reference_group has no meaning", work.run, None),  # a key of its file
        ("n_components=3, by_group=False", work.run, "components = 3, by_group = false"),
        ("domains={'a': ['q1']}", work.run, 'domains = { a = ["q1"] }'),
        (
            "[[tables]] t.csv: join=: no on=('person_id', 'pupil'), weights=['w*'], by=['a']",
            work.run,
            '[[tables]] t.csv: persons =: no on = "pupil", replicates = ["w*"], by = ["a"]',
        ),
        ("weights='ignore' and join=", work.run, 'weights = "ignore" and join='),
        (
            "once: select the responses with weights='ignore'",
            work.score,
            "once: --weights ignore",
        ),
        ("fit_pairwise with all pairs", calibrate.calibrate, "--method pairwise with all pairs"),
        ("one that does (fit_marginal)", calibrate.calibrate, "one that does (--method marginal)"),
    ],
)
def test_remedies_are_those_of_the_command(text, command, expected):
    assert typed(text, command) == (text if expected is None else expected)


def test_what_python_says_without_keywords_is_said_in_the_shell_too():
    groups = "no groups of persons; give persons= with a column group to from_array or ingest"
    assert typed(groups, examine.dif) == (
        "no groups of persons; give 'irt-dask ingest --persons' a table with a column group"
    )
    assert typed(groups, work.run).endswith("give persons = with a column group")
    assert typed(groups, None) == groups
    units = "they have none: ingest a table, or give an array with one label for each person"
    assert typed(units, calibrate.calibrate) == "they have none: ingest a table"
    said = set(messages(Path(irt.__file__).parent))
    for phrase, in_shell, in_file in spoken._PHRASES:
        assert any(phrase in text and phrase != text for text in said), phrase
        assert phrase not in typed(f"x{phrase}, or", examine.dif)
        assert "irt." not in in_shell + in_file


def test_functions_are_named_as_the_command():
    said = "{} does not support person weights, and irt.item_curves(x) is left alone"
    found = typed(said.format("item_curves"), residuals.curves)
    assert found == said.format("irt-dask curves")
    assert typed("residual_correlations does not", residuals.q3) == "irt-dask q3 does not"
    wrong = typed("it; use score(method='wle'), or 'tcc'", banks.score_table)
    assert wrong == "it; use irt-dask score --method wle, or 'tcc'"


def test_lists_of_names_are_typed_as_they_are_written():
    assert list_of('A, B,"C, D"') == ["A", "B", "C, D"]


def messages(folder: Path) -> list[str]:
    """All texts of a package's folder that are no documentation, with some value in each gap."""
    found = []
    for file in sorted(folder.rglob("*.py")):
        tree = ast.parse(file.read_text())
        nodes = list(ast.walk(tree))
        docs = {id(n.value) for n in nodes if isinstance(n, ast.Expr)}
        parts = {id(v) for n in nodes if isinstance(n, ast.JoinedStr) for v in n.values}
        for node in nodes:
            if isinstance(node, ast.JoinedStr):
                texts = (v.value if isinstance(v, ast.Constant) else "'x'" for v in node.values)
                found.append("".join(texts))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                found += [] if id(node) in docs or id(node) in parts else [node.value]
    return found


def test_all_messages_of_ingest_are_spoken():
    """No keyword is left in any message, and each has an option."""
    names = {*inspect.signature(irt.ingest).parameters, *inspect.signature(irt.append).parameters}
    keyword = re.compile(rf"(?<![\w.])({'|'.join(names - {'source', 'store', 'client'})})=")
    package = Path(irt.__file__).parent
    texts = [*messages(package / "ingest"), *messages(package / "store")]
    speaking = [text for text in texts if keyword.search(text)]
    assert len(speaking) > 15
    wrong = {text: shown for text in speaking if keyword.search(shown := typed(text, data.append))}
    only_ingest = {t for t in wrong if not keyword.search(typed(t, data.ingest))}
    assert {t: s for t, s in wrong.items() if t not in only_ingest} == {}
    its_own = ("layout", "weight_kind", "trials")  # append has none of these
    assert all(any(name in t for name in its_own) for t in only_ingest), only_ingest


def shown(args, code, folder, monkeypatch, capsys):
    """What a command prints as an error, in this process."""
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "argv", ["irt-dask", *args])
    if code == 0:
        main()
    else:
        with pytest.raises(SystemExit) as ended:
            main()
        assert ended.value.code == code
    return capsys.readouterr()


@pytest.mark.parametrize(
    "args, message",
    [
        ([], "say --missing m, else --recode m=right or --recode m=wrong; where items have more "
             "than two categories, say --categories and, for each label, --recode m=CODE; its name "
             "is hardly that of an item; if the column is no item, --exclude sex"),
        (["--column", "items=z*"], "--column 'items=z*': no column matches 'z*'"),
        (["--exclude", "z,q1"], "--exclude z: there is no column 'z'"),
        (["--missing", "1"], "recode it: --recode 1=missing"),
        (["--column", "q1"], "--column 'q1': write ROLE=NAME"),
        (["--column", "person=id", "--column", "person=q1"], "person= is there twice, 'id' and"),
        (["--recode", "m=wrong", "--recode", "m=right"], "'m' has two meanings, 'wrong' and"),
    ],
)  # fmt: skip
def test_the_shell_is_told_what_to_type(args, message, tmp_path, monkeypatch, capsys):
    (tmp_path / "f.csv").write_text("id,q1,sex\na,1,m\nb,0,w\n")
    error = shown(["ingest", "f.csv", "s", *args], 2, tmp_path, monkeypatch, capsys).err
    assert message in error


def test_numbers_out_of_range_and_what_is_no_store(tmp_path, typed):
    r = irt.simulate(20, 3, store="s", seed=2)
    irt.write_items(r.truth, "b.csv")
    said = typed("score", "s", "b.csv", "--out", "o", "--plausible", -1, code=2).err
    assert "'--plausible': -1 is not in the range x>=0" in said
    said = typed("score", "s", "b.csv", "--out", "o", "--item-draws", 5, code=2).err
    assert "carry no draws; give a posterior" in said
    said = typed("ingest", "b.csv", "t", "--rows-per-block", 0, code=2).err
    assert "'--rows-per-block': 0 is not in the range x>=1" in said
    said = typed("calibrate", "b.csv", "--out", "z.csv", code=2).err
    assert "b.csv is a file, not a store of responses: make one by irt-dask ingest" in said
    assert "with --coreset at least 8" in " ".join(typed("calibrate", "--help").out.split())


def test_warnings_and_runs_too(tmp_path, monkeypatch, capsys):
    (tmp_path / "f.csv").write_text("id,q1,q2,sex,e\na,1,0,1,\nb,0,1,0,\n")
    args = ["ingest", "f.csv", "s", "--column", "items=q*,sex:e"]
    told = shown(args, 0, tmp_path, monkeypatch, capsys)
    assert "note: " in told.err
    assert "leave out what is no item: --exclude sex;" in told.err
    (tmp_path / "g.csv").write_text("id,q1,q2\na,1,0\nb,0,x\n")
    (tmp_path / "p.toml").write_text('[data]\nsource = "g.csv"\n')
    told = shown(["run", "p.toml", "--cluster", "none"], 2, tmp_path, monkeypatch, capsys)
    assert 'say missing = ["x"], else recode = { x = "right" } or' in told.err


def test_items_are_listed_in_short(tmp_path, monkeypatch, capsys):
    names = [*(f"q{j}" for j in range(1, 41)), "w", "y9", "y11", *(f"z{j}b" for j in (7, 8, 9, 10))]
    rows = "".join(f"p{i}" + ",1,0" * 23 + ",1\n" for i in range(2))
    (tmp_path / "f.csv").write_text(f"id,{','.join(names)}\n{rows}")
    told = shown(["ingest", "f.csv", "s"], 0, tmp_path, monkeypatch, capsys).out
    assert "items           47: q1 ... q40 (40), w, y9, y11, z7b ... z10b (4)\n" in told
    assert told == shown(["info", "s"], 0, tmp_path, monkeypatch, capsys).out
    about = json.loads(shown(["info", "s", "--json"], 0, tmp_path, monkeypatch, capsys).out)
    assert (about["items"], about["item_id"]) == (47, names)
