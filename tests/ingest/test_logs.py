"""Logs of lm-evaluation-harness: what is read of them, and what is refused."""

import gzip
import json

import numpy as np
import pandas as pd
import pytest

import irt_dask as irt
from irt_dask.errors import InputError
from irt_dask.ingest.logs import evaluation_logs

FIRST, SECOND = "2026-01-16T15-23-47.285735", "2026-01-17T09-00-00.1"


def lines(values, metric="acc", content="", **more):
    """A log as the harness writes it: prompts and answers in full, a value of each metric."""
    return [
        {
            "doc_id": k, "doc": {"question": f"{content}{k}"}, "target": "A",
            "arguments": {"gen_args_0": {"arg_0": "prompt", "arg_1": {"until": ["\n"]}}},
            "resps": [["A"]], "filtered_resps": ["A"], "filter": "none", "metrics": [metric],
            "doc_hash": f"{content}hash{k}", "prompt_hash": "p", "target_hash": "t", metric: value,
        } | more
        for k, value in enumerate(values)
    ]  # fmt: skip


def write(root, model, task, answers, date=FIRST, packed=False):
    name = f"samples_{task}_{date}.jsonl" if date else f"samples_{task}.jsonl"
    file = root / model / (f"{name}.gz" if packed else name)
    file.parent.mkdir(parents=True, exist_ok=True)
    text = "\n".join(map(json.dumps, answers)) + "\n"
    file.write_bytes(gzip.compress(text.encode()) if packed else text.encode())
    return file


def test_answers_of_all_models_and_tasks(tmp_path):
    """Names of tasks have underscores; some files are packed, lie deeper, or have no date."""
    logs, out = tmp_path / "logs", tmp_path / "answers.csv"
    write(logs, "org__small", "arc_easy", lines([1.0, 0.0, 1.0]))
    write(logs, "more/org__large", "arc_easy", lines([True, True, False], content=""), packed=True)
    write(logs, "org__small", "gsm8k_2", lines([0.0, 1.0], metric="exact_match"), date="")
    (logs / "org__small" / f"results_{FIRST}.json").write_text("{}")
    found = evaluation_logs(logs, out, progress=False)
    table = pd.read_csv(out)
    assert list(table.columns) == ["model", "question", "task", "score"]
    wide = table.pivot(index="model", columns="question", values="score")
    assert wide.loc["org__small"].tolist() == [1, 0, 1, 0, 1]
    np.testing.assert_array_equal(wide.loc["org__large"], [1, 1, 0, np.nan, np.nan])
    assert wide.columns.tolist() == [
        "arc_easy/0", "arc_easy/1", "arc_easy/2", "gsm8k_2/0", "gsm8k_2/1"
    ]  # fmt: skip
    assert found[:5] == (3, 2, 2, 5, 8)
    assert found.metrics == {"arc_easy": "acc", "gsm8k_2": "exact_match"}
    assert found.filters == {"arc_easy": "none", "gsm8k_2": "none"}
    assert found.superseded == ()
    assert found.n_unchecked == 0


def test_one_of_several_metrics_and_filters(tmp_path):
    both = [
        one | {"acc_norm": 1 - one["acc"], "metrics": ["acc", "acc_norm"]}
        for one in lines([1.0, 0.0])
    ]
    twice = lines([0.0, 0.0], metric="exact_match", filter="strict-match")
    twice += lines([1.0, 0.0], metric="exact_match", filter="flexible-extract")
    write(tmp_path, "m", "arc", both)
    with pytest.raises(InputError, match=r"arc.*line 1: has 2 metrics \('acc', 'acc_norm'\)"):
        evaluation_logs(tmp_path, tmp_path / "a.csv")
    evaluation_logs(tmp_path, tmp_path / "a.csv", metric="acc_norm")
    assert pd.read_csv(tmp_path / "a.csv")["score"].tolist() == [0, 1]
    write(tmp_path, "m", "gsm8k", twice)
    metrics = ("acc", "exact_match")
    with pytest.raises(InputError, match="line 3: has answers by filter 'flexible-extract'"):
        evaluation_logs(tmp_path, tmp_path / "b.csv", metric=metrics)
    assert not (tmp_path / "b.csv").exists()
    with pytest.raises(InputError, match="line 1: has none of the metrics 'acc'; it has 'exact_m"):
        evaluation_logs(tmp_path, tmp_path / "b.csv", metric="acc")
    (tmp_path / "m" / f"samples_arc_{FIRST}.jsonl").unlink()
    for own, right in (("strict-match", [0, 0]), ("flexible-extract", [1, 0])):
        evaluation_logs(tmp_path, tmp_path / "b.csv", metric=metrics, filter=own)
        assert pd.read_csv(tmp_path / "b.csv")["score"].tolist() == right
    with pytest.raises(InputError, match="has no answers by filter 'loose'; it has 'flexible-extr"):
        evaluation_logs(tmp_path, tmp_path / "b.csv", filter="loose")
    write(tmp_path, "m", "arc", [one | {"filter": None} for one in both])
    with pytest.raises(InputError, match="has no answers by filter 'strict-match'; it has 'none'"):
        evaluation_logs(tmp_path, tmp_path / "b.csv", metric=metrics, filter="strict-match")
    found = evaluation_logs(
        tmp_path, tmp_path / "b.csv", metric=metrics, filter=("strict-match", "none")
    )
    assert found.filters == {"arc": "none", "gsm8k": "strict-match"}
    assert pd.read_csv(tmp_path / "b.csv")["score"].tolist() == [1, 0, 0, 0]
    with pytest.raises(InputError, match="name must end in"):
        evaluation_logs(tmp_path, tmp_path / "b.txt")


def test_runs_without_all_questions_and_folders_of_one_name_are_told(tmp_path):
    write(tmp_path, "a", "arc", lines([1.0, 0.0, 1.0]))
    write(tmp_path, "b", "arc", lines([1.0, 0.0]))
    write(tmp_path, "c", "arc", []).write_text("")
    write(tmp_path, "more/a", "gsm8k", lines([1.0]))
    found = evaluation_logs(tmp_path, tmp_path / "a.csv")
    assert found.incomplete == (("b", "arc", 2), ("c", "arc", 0))
    assert found.scattered == ("a",)


def test_older_logs_name_no_metrics_and_have_no_hash(tmp_path):
    answers = [{"doc_id": k, "doc": {}, "target": "A", "acc": k} for k in range(2)]
    write(tmp_path, "m", "arc", answers)
    write(tmp_path, "n", "arc", lines([1.0, 1.0]))
    found = evaluation_logs(tmp_path, tmp_path / "a.csv")
    assert found.n_unchecked == 2
    assert pd.read_csv(tmp_path / "a.csv")["score"].tolist() == [0, 1, 1, 1]


def test_several_runs_of_a_task(tmp_path):
    logs, out = tmp_path / "logs", tmp_path / "a.csv"
    late = write(logs, "m", "arc", lines([1.0, 1.0]), SECOND)
    early = write(logs, "m", "arc", lines([0.0, 1.0]))
    with pytest.raises(InputError, match=r"m has run arc 2 times .*repeated='last'"):
        evaluation_logs(logs, out)
    found = evaluation_logs(logs, out, repeated="last")
    assert pd.read_csv(out)["score"].tolist() == [1, 1]
    assert found.superseded == (early,)
    found = evaluation_logs(logs, out, repeated="attempts")
    table = pd.read_csv(out)
    assert table["attempt"].tolist() == [1, 1, 2, 2]
    assert table["score"].tolist() == [0, 1, 1, 1]
    assert found.n_files == 2
    (logs / "other" / "m").mkdir(parents=True)
    late.rename(logs / "other" / "m" / early.name)
    with pytest.raises(InputError, match="do not say which came first"):
        evaluation_logs(logs, out, repeated="last")


def test_a_task_that_changed_between_runs_is_refused(tmp_path):
    """The trap of numbers as names: question 1 of one version is another one in the next."""
    write(tmp_path, "a", "arc", lines([1.0, 1.0]))
    file = write(tmp_path, "b", "arc", lines([1.0, 1.0])[:1] + lines([0.0, 1.0], content="new")[1:])
    with pytest.raises(
        InputError, match=r"line 2: question arc/1 is another one \(doc_hash\)"
    ) as e:
        evaluation_logs(tmp_path, tmp_path / "a.csv")
    assert str(file) in str(e.value)
    write(tmp_path, "b", "arc", lines([1.0, 1.0], metric="acc_norm"))
    with pytest.raises(InputError, match=r"is scored by 'acc_norm', and arc in .* by 'acc'"):
        evaluation_logs(tmp_path, tmp_path / "a.csv")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"doc_id": 0, "acc": 1}\n{"doc_id": 1, "ac', "line 2: cannot be read as JSON"),
        ("[1, 2]\n", "line 1: is no JSON object"),
        ('{"acc": 1}\n', "line 1: has no doc_id"),
        ('{"doc_id": 0, "acc": 1}\n\n{"doc_id": 0, "acc": 0}\n', "line 3: .* is there twice"),
        ('{"doc_id": 0, "f1": ["a", ["b"]]}\n', r"line 1: f1 is \"\['a', \['b'\]\]\", and an"),
        ('{"doc_id": 0, "acc": 0.35}\n', "line 1: acc is '0.35'"),
        ('{"doc_id": 0, "acc": NaN}\n', "line 1: acc is 'nan'"),
        ('{"doc_id": 0}\n', "line 1: has 0 metrics"),
        ('{"doc_id": 0, "acc": 1}\n\xff', "line 2: is not in UTF-8"),
        ('{"doc_id": "\\ud800", "acc": 1}\n', "line 1: doc_id '.ud800' is no name"),
        ("", "the logs have no answers"),
    ],
)
def test_what_cannot_be_read_is_an_error_with_its_line(tmp_path, text, message):
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / f"samples_arc_{FIRST}.jsonl").write_bytes(text.encode("latin-1"))
    with pytest.raises(InputError, match=message):
        evaluation_logs(tmp_path, tmp_path / "a.csv")
    assert not (tmp_path / "a.csv").exists()


def test_folders_that_are_none_of_logs(tmp_path):
    with pytest.raises(InputError, match="is no folder of logs"):
        evaluation_logs(tmp_path / "none", tmp_path / "a.csv")
    with pytest.raises(InputError, match="has no logs: files samples_TASK"):
        evaluation_logs(tmp_path, tmp_path / "a.csv")
    (tmp_path / f"samples_arc_{FIRST}.jsonl").write_text("{}")
    with pytest.raises(InputError, match="give the folder above"):
        evaluation_logs(tmp_path, tmp_path / "a.csv")
    packed = tmp_path / "logs" / "m" / f"samples_arc_{FIRST}.jsonl.gz"
    packed.parent.mkdir(parents=True)
    whole = gzip.compress(b'{"doc_id": 0, "acc": 1}' * 99)
    for damaged in (whole[:-9], whole[:14] + b"\xff\xff\xff" + whole[17:]):
        packed.write_bytes(damaged)
        with pytest.raises(InputError, match="cannot be read"):
            evaluation_logs(tmp_path / "logs", tmp_path / "a.csv")


def test_a_board_of_logs(tmp_path):
    """From logs to responses, as irt-dask benchmark reads the table."""
    rng = np.random.default_rng(0)
    y = (rng.random((12, 20)) < rng.random((12, 1))).astype(int)
    for i, row in enumerate(y):
        write(tmp_path, f"org__m{i:02d}", "arc", lines(row.tolist()[:12]))
        write(tmp_path, f"org__m{i:02d}", "gsm8k", lines(row.tolist()[12:], metric="exact_match"))
    evaluation_logs(tmp_path, tmp_path / "a.csv")
    r = irt.ingest(tmp_path / "a.csv", tmp_path / "a.store", progress=False)
    at = [r.item_id.index(f"arc/{k}") for k in range(12)]
    at += [r.item_id.index(f"gsm8k/{k}") for k in range(8)]
    np.testing.assert_array_equal(r.read_block(0).data.values[:, at], y)
