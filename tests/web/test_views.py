"""The views besides Plan: what their routes answer, and what they refuse."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from urllib.parse import urlencode

import pytest

pytest.importorskip("httpx", reason="the test client needs httpx")

from starlette.testclient import TestClient

from shardplan.files import DATA, example_files
from shardplan.web.app import create_app
from shardplan.web.decisions import OPERATIONS
from shardplan.web.pages.view import VIEWS, View
from shardplan.web.settings import ServerSettings
from shardplan.web.static_files import static_url

SMALL = "model=llama-3.1-8b&cluster=dgx-h100&gpus=16&lock.tp=2&lock.pp=2&lock.cp=1&lock.micro_batch_size=1"
SCRIPT = example_files()["launch.sh"].decode()


@pytest.fixture(scope="module")
def client() -> Iterator[TestClient]:
    with TestClient(create_app(ServerSettings(time_limit=120.0)), base_url="http://127.0.0.1:8321") as found:
        yield found


def audited(client: TestClient, **fields: str) -> str:
    body = urlencode(fields)
    headers = {"Content-Type": "application/x-www-form-urlencoded"}
    response = client.post("/audit/answer", content=body, headers=headers)
    assert response.status_code == 200, response.text
    return response.text


@pytest.mark.parametrize("view", VIEWS, ids=lambda view: view.title)
def test_every_page_carries_the_question_and_no_inline_script(client: TestClient, view: View) -> None:
    page = client.get(f"{view.path}?model=llama-3.1-8b&gpus=16")
    assert page.status_code == 200
    assert all("src=" in tag for tag in re.findall(r"<script[^>]*>", page.text))
    assert not re.findall(r"\sstyle=|\son[a-z]+=", page.text)


def test_trust_counts_the_runs_that_pass(client: TestClient) -> None:
    everything = client.get("/trust/answer").text
    some = client.get("/trust/answer?run_family=bloom&quantity=peak_memory").text
    assert "1,235 predictions" in everything
    assert "of 1,235 runs" in everything
    assert "bloom-0" in some
    assert "nano-020" not in some


def test_trust_shows_a_run_with_its_plan_source_and_reasons(client: TestClient) -> None:
    run = client.get("/trust/run?run=ds-azure-gpt-2t").text
    assert all(text in run for text in ("micro-batch 8", "deepspeed-azure", "the description leaves out", "14.4 min"))


@pytest.mark.parametrize("query", ["quantity=luck", "by=weather", "drawn=pie"])
def test_trust_refuses_what_it_does_not_know(client: TestClient, query: str) -> None:
    answer = client.get(f"/trust/answer?{query}")
    assert answer.status_code == 422
    assert "Fix" in answer.text


def test_nothing_passes_is_an_answer(client: TestClient) -> None:
    answer = client.get("/trust/answer?run_text=no-such-thing")
    assert answer.status_code == 200
    assert "Show all runs" in answer.text


def test_markup_in_a_filter_is_text(client: TestClient) -> None:
    page = client.get("/trust", params={"run_text": '"><script>alert(1)</script>'}).text
    assert "<script>alert" not in page


def test_an_audit_reads_judges_and_improves(client: TestClient) -> None:
    found = audited(client, script=SCRIPT, audit_cluster="dgx-h100")
    assert "nothing broken is found; it fits" in found
    assert "+ --num-virtual-stages-per-pipeline-rank" in found
    assert "70.6B parameters" in found


def test_an_audit_asks_for_what_is_missing_by_name(client: TestClient) -> None:
    script = SCRIPT.replace("TP=${TP:-8}\n", "")
    found = audited(client, script=script, audit_cluster="dgx-h100")
    assert "Environment variable TP" in found
    assert 'name="env.TP"' in found
    given = audited(client, script=script, audit_cluster="dgx-h100", **{"env.TP": "8"})
    assert "it fits" in given
    assert 'value="8"' in given


def test_an_audit_names_no_folder_of_the_server(client: TestClient) -> None:
    body = urlencode({"script": "python train.py\n"})
    headers = {"Content-Type": "application/x-www-form-urlencoded"}
    answer = client.post("/audit/answer", content=body, headers=headers)
    assert answer.status_code == 422
    assert "/tmp" not in answer.text  # noqa: S108  # what must not be shown
    assert "launch.sh" in answer.text


def test_an_audit_without_a_script_says_what_to_do(client: TestClient) -> None:
    assert "No script yet" in audited(client, script="  ")


def test_a_file_name_with_a_path_is_none(client: TestClient) -> None:
    found = audited(client, script=SCRIPT, name="../../etc/cron.sh", audit_cluster="dgx-h100")
    assert "cron" not in found


def test_the_step_is_simulated_and_shown(client: TestClient) -> None:
    found = client.get(f"/step/answer?{SMALL}").text
    assert "a step, simulated" in found
    assert "step/timeline?model=llama-3.1-8b" in found
    rows = client.get(f"/step/schedules?{SMALL}").text
    assert all(name in rows for name in ("1f1b", "gpipe", "this plan"))


def test_the_timeline_runs_its_own_script_alone(client: TestClient) -> None:
    timeline = client.get(f"/step/timeline?{SMALL}")
    rule = timeline.headers["Content-Security-Policy"]
    assert "script-src 'sha256-" in rule
    assert "unsafe" not in rule
    assert "frame-ancestors 'self'" in rule
    page = client.get(f"/step?{SMALL}").headers["Content-Security-Policy"]
    assert "frame-src 'self'" in page


def test_the_trace_is_a_file_of_events(client: TestClient) -> None:
    trace = client.get(f"/step/trace.json?{SMALL}")
    assert "attachment" in trace.headers["Content-Disposition"]
    assert trace.json()["traceEvents"]


def test_a_plan_of_ones_own_is_simulated(client: TestClient) -> None:
    assert "pp 4" in client.get(f"/step/answer?{SMALL}&show=tp=2;pp=4").text
    assert client.get(f"/step/answer?{SMALL}&show=tp=3").status_code == 422
    assert client.get(f"/step/answer?{SMALL}&step_schedule=../x.csv").status_code == 422


@pytest.mark.parametrize("to", ["megatron-lm", "torchtitan"])
def test_export_writes_files_or_says_why_not(client: TestClient, to: str) -> None:
    found = client.get(f"/export/answer?{SMALL}&to={to}")
    assert found.status_code == 200
    assert ('id="file-1"' in found.text) != (f"Plan for {to}" in found.text)


def test_export_refuses_unknown_frameworks(client: TestClient) -> None:
    assert client.get(f"/export/answer?{SMALL}&to=../etc").status_code == 422


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("decide=scale&sizes=8,16", "Pays: At every size up to 16"),
        ("decide=vary&over=global_batch_size&values=64,128", "Most tokens per second at global batch size"),
        ("decide=vary&over=set.inter_node_bandwidth&values=25 GB/s,50 GB/s", "50 GB/s"),
        ("decide=pareto_sizes&sizes=8,16", "8 accelerators: "),
        ("decide=pareto_sizes&sizes=8,16&tokens=1T", "Cheapest</b> 8 accelerators: "),
        ("decide=pareto", "is better than one of them"),
        ("decide=sensitivity", "Pays: "),
        ("decide=fit&sought=sequence_length", "The largest sequence length that fits is"),
        ("decide=fit&sought=gpus", "The smallest number of accelerators that fits is"),
        ("decide=whatif&change.1=precision&to.1=fp8&change.2=gpus&to.2=32", "Before and after all changes"),
        ("decide=budget&budget_tokens=1T", "on 16 x NVIDIA H100"),
        ("decide=budget&budget_tokens=1T&budget_clusters=dgx-h100,dgx-b200", "dgx-b200</td>"),
    ],
)
def test_decisions_have_a_verdict_and_figures(client: TestClient, query: str, text: str) -> None:
    found = client.get(f"/decide/answer?{SMALL}&{query}")
    assert found.status_code == 200, found.text
    assert text in found.text
    assert "data-chart=" in found.text


@pytest.mark.parametrize(
    "query",
    [
        "decide=luck",
        "decide=scale&sizes=many",
        "decide=budget&budget_limit=days",
        "decide=fit&sought=luck",
        "decide=whatif&to.1=",
        "decide=whatif&change.1=cluster&to.1=/etc/passwd",
        "decide=whatif&change.1=tp&to.1=2",
    ],
)
def test_decisions_refuse_with_the_field(client: TestClient, query: str) -> None:
    assert client.get(f"/decide/answer?{SMALL}&{query}").status_code == 422


def test_fields_of_a_form_with_an_uploaded_model_are_read_too(client: TestClient) -> None:
    config = {**json.loads((DATA / "models" / "llama-3.1-8b.json").read_text()), "num_hidden_layers": 24}
    body = urlencode(
        {"model": "config.json", "config": json.dumps(config), "decide": "fit", "sought": "gpus", "gpus": "16"}
    )
    headers = {"Content-Type": "application/x-www-form-urlencoded"}
    found = client.post("/decide/answer", content=body, headers=headers)
    assert "The smallest number of accelerators that fits" in found.text
    assert "config=" not in found.headers["HX-Replace-Url"]


def test_trust_marks_the_runs_nearest_to_the_question(client: TestClient) -> None:
    found = client.get(f"/trust/answer?{SMALL}&near=sought").text
    assert "Nearest to your question" in found
    assert "nearest to your question" in found  # the stars of the figure
    assert found.count('<span class="badge">near</span>') <= 3
    assert "Nearest to your question" not in client.get("/trust/answer").text


def test_what_is_missing_has_a_page_of_its_own(client: TestClient) -> None:
    missing, token = client.get("/nothing/here?gpus=8"), "sixteen characters"
    assert missing.status_code == 404
    assert "There is no such page" in missing.text
    assert 'href="../step"' in missing.text
    with TestClient(create_app(ServerSettings(token=token)), base_url="http://127.0.0.1:8321") as guarded:
        refused = guarded.get("/step?gpus=8")
        assert refused.status_code == 401
        assert all(text in refused.text for text in ("This server needs its token", 'name="token"', 'value="8"'))
        assert guarded.get(static_url("style.css")).status_code == 200
        opened = guarded.get("/step", params={"gpus": "8", "token": token})
        assert opened.status_code == 200
        assert opened.url.query == b"gpus=8"


@pytest.mark.parametrize("view", VIEWS, ids=lambda view: view.title)
def test_without_scripts_a_page_has_its_answer_in_it(client: TestClient, view: View) -> None:
    empty = client.get(f"{view.path}?{SMALL}").text
    assert 'http-equiv="refresh"' in empty
    full = client.get(f"{view.path}?{SMALL}&decide=scale&sizes=16&answer=here")
    assert full.status_code == 200
    assert "data-said=" in full.text
    assert 'http-equiv="refresh"' not in full.text


def test_without_scripts_an_error_is_in_the_page(client: TestClient) -> None:
    page = client.get("/step?gpus=none&answer=here")
    assert page.status_code == 422
    assert "This question has no answer yet" in page.text
    assert 'name="gpus"' in page.text


def test_the_limits_of_training_are_drawn_for_a_device(client: TestClient) -> None:
    found = client.get("/published/limits?device=a100-sxm-80gb").text
    assert "nothing ends in time beyond" in found
    assert "a100-sxm-80gb" in found
    assert client.get("/published/limits?device=/etc/passwd").status_code == 422


def test_other_software_that_would_help_is_one_click_away(client: TestClient) -> None:
    found = client.get("/why?model=deepseek-v3&cluster=dgx-h100&gpus=2048&software=moe_dispatcher=alltoall").text
    assert re.search(r'href="[^"]*software=moe_dispatcher=(?:deepep|hybridep)[^"]*"[^>]*>Ask that', found)
    assert "plan with --software" not in found


def test_a_field_that_no_decision_has_is_left_out(client: TestClient) -> None:
    asked = f"/decide/answer?{SMALL}&decide=budget&budget_tokens=1B"
    assert client.get(f"{asked}&ops.nothing=1").status_code == 200
    assert client.get(f"{asked}&ops.{next(iter(OPERATIONS))}=many").status_code == 422


def test_progress_of_an_unknown_ticket_is_nothing(client: TestClient) -> None:
    assert client.get("/decide/progress?ticket=ab").json() == {"done": 0, "of": 0}


def test_published_models_answer_or_say_why_not(client: TestClient) -> None:
    found = client.get(f"/published/answer?{SMALL}").text
    assert all(name in found for name in ("calculator", "subramanian2024", "data-movement", "searcher"))
    moe = client.get("/published/answer?model=qwen3-30b-a3b&cluster=dgx-h100&gpus=16&lock.tp=1&lock.pp=1").text
    assert "Cannot say" in moe


def test_a_figure_of_the_paper_is_drawn(client: TestClient) -> None:
    assert "data-chart=" in client.get("/published/figure?figure=F8").text
    assert client.get("/published/figure?figure=F99").status_code == 422
