"""The published results of arXiv 2410.00273: every configuration priced anew, every search repeated."""

import csv
import math
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from shardplan.base.errors import InputError
from shardplan.methods.check import check_text
from shardplan.methods.subramanian2024.inputs import load_model, load_system
from shardplan.methods.subramanian2024.iteration import Configuration, PaperSetting, price
from shardplan.methods.subramanian2024.method import Subramanian2024
from shardplan.methods.subramanian2024.strategies import STRATEGIES, Split, strategy_of
from shardplan.methods.subramanian2024.study import SIZES, Study, study

DATA = Path(__file__).parent / "data"
TOP = (DATA / "subramanian2024_top1.csv").read_text()
COUNTS = list(csv.DictReader((DATA / "subramanian2024_counts.csv").read_text().splitlines()))


@pytest.fixture(scope="module")
def results() -> Study:
    return study()


def test_every_published_configuration_and_search_is_reproduced() -> None:
    checked = check_text(TOP, "top1", [Subramanian2024()])
    assert len(checked.cases) == 2 * 162
    assert checked.num_values == 162 * 22
    assert checked.differing == ()
    assert checked.worst_relative < 1e-14
    assert checked.worst_at_zero == 0


@pytest.mark.parametrize("row", COUNTS, ids=lambda row: f"{row['model']}-{row['strategy']}-{row['nvs']}")
def test_as_many_candidates_as_the_paper_enumerates(row: dict[str, str], results: Study) -> None:
    for system in ("A100", "H200", "B200"):
        entry = results.entry(row["model"], row["strategy"], system, int(row["nvs"]))
        assert entry.num_candidates == int(row["num_candidates"])


def test_the_whole_study_has_as_many_candidates_and_results_as_published(results: Study) -> None:
    assert results.num_candidates == 3 * sum(int(row["num_candidates"]) for row in COUNTS) == 9_183_444
    assert sum(1 for _ in results.records()) == 3575


def test_a_model_fits_at_the_published_sizes_and_no_others(results: Study) -> None:
    published: dict[tuple[str, str, str, int], set[int]] = {}
    for row in csv.DictReader(TOP.splitlines()):
        key = (row["model"], row["strategy"], row["gpu"], int(row["nvs"]))
        published.setdefault(key, set()).add(int(row["n_gpus"]))
    for key, sizes in published.items():
        assert {result.num_gpus for result in results.entry(*key).best} == sizes


def test_results_of_a_study_are_ranked_and_fit(results: Study) -> None:
    for entry in results.entries:
        capacity = load_system(entry.system).hbm_capacity / 1e9
        for result in entry.results:
            assert list(result.throughputs) == sorted(result.throughputs, reverse=True)
            assert len(result.best) == min(10, result.num_fitting)
        assert all(record["memory_GB"] <= capacity for record in entry.records)


def test_the_search_reports_the_throughput_that_pricing_gives(results: Study) -> None:
    for entry in results.entries:
        throughputs = [value for result in entry.results for value in result.throughputs]
        assert [record["throughput"] for record in entry.records] == pytest.approx(throughputs, rel=1e-13)


def test_one_accelerator_does_the_published_work() -> None:
    """Section 8 of the specification of the programme: parameters and work of one sample of gpt3_1T on H200."""
    model, system = load_model("gpt3_1T"), load_system("H200")
    setting = PaperSetting(model=model, system=system, strategy=strategy_of("1d"))
    one = price(setting, [Configuration(dp=1, tp1=1, pp=1)])
    assert float(np.max(one.memory.weights)) / 2 / 1e12 == pytest.approx(1.006665728, rel=1e-12)
    assert float(np.max(one.flops)) / 4096 / 1e15 == pytest.approx(12.569785006994787, rel=1e-12)
    parts = strategy_of("1d").operators(model, system, Split(m1=1), frozenset())
    work = [float(part.forward.flops + part.backward.flops) for part in parts]
    assert sum(work[:8]) / sum(work[8:]) == pytest.approx(1.9074197861849107, rel=1e-12)


def test_every_part_of_the_time_counts_once(results: Study) -> None:
    parts = ("t_comp", "t_mem", "t_tp_comm", "t_bubble", "t_dp_comm", "t_pp_comm")
    for record in results.records():
        assert math.fsum(record[part] for part in parts) == pytest.approx(record["t"], rel=1e-12)
        shares = ("comp", "mem", "tp_comm", "bubble", "dp_comm", "pp_comm")
        assert math.fsum(record[f"{share}_frac"] for share in shares) == pytest.approx(1, rel=1e-12)


def test_a_study_can_be_spread_over_workers(results: Study) -> None:
    with ThreadPoolExecutor(2) as executor:
        spread = study(models=["vit_era5"], strategies=["1d", "2d-seqp"], executor=executor)
    assert spread.entries == tuple(
        results.entry("vit_era5", strategy, system, nvs)
        for strategy in ("1d", "2d-seqp")
        for nvs in (4, 8, 64)
        for system in ("A100", "H200", "B200")
    )


def test_other_files_are_not_of_this_method() -> None:
    method = Subramanian2024()
    for text in ("", "{}", '{"cases": []}', "a,b\n1,2\n", "strategy,model\n1d,gpt3\n", "\x00", "x" * 200_000, "\n\n"):
        assert method.cases(text) is None


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("n_gpus", "many"),
        ("n_gpus", "511"),
        ("throughput", "nan"),
        ("pp", "31"),
        ("dp", "-1"),
        ("nv_tp", "3"),
        ("strategy", "3d"),
        ("model", "gpt9"),
        ("gpu", "B300"),
        ("nvs", "1e99"),
    ],
)
def test_a_broken_row_is_refused_by_name(column: str, value: str) -> None:
    header, first, *_ = TOP.splitlines()
    fields = dict(zip(header.split(","), first.split(","), strict=True)) | {column: value}
    with pytest.raises(InputError):
        list(Subramanian2024().cases(f"{header}\n{','.join(fields.values())}\n") or ())


def test_a_row_without_figures_is_nothing_to_check() -> None:
    table = "strategy,model,gpu,nvs,n_gpus,throughput,dp,pp,mbs\n1d,gpt3,A100,4,4,,4,1,1\n"
    assert [case.expected for case in Subramanian2024().cases(table) or ()] == [{}, {}]


def test_published_configurations_that_do_not_divide_evenly(results: Study) -> None:
    """Section 9, Q7: 14 of the vision transformer, none the best of its search."""
    rounded = [
        record
        for record in results.records()
        if record["strategy"] == "2d-seqp" and load_model(record["model"]).l % record["tp"]
    ]
    assert len(rounded) == 14
    assert {record["model"] for record in rounded} == {"vit_era5"}
    assert min(record["rank"] for record in rounded) > 1


def test_an_altered_figure_is_found() -> None:
    checked = check_text(TOP.replace("6.668817027224912,73.42", "6.668817127224912,73.42"), "x", [Subramanian2024()])
    assert not checked.passed
    assert 1e-8 < checked.worst_relative < 2e-8


def test_every_strategy_and_system_of_the_paper_is_searched() -> None:
    assert list(STRATEGIES) == ["1d", "2d-seqp", "2d"]
    assert SIZES[0] == 4
    assert SIZES[-1] == 16384
