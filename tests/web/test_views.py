"""The views besides Plan: what their routes answer, and what they refuse."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode

import pytest

pytest.importorskip("httpx", reason="the test client needs httpx")

from starlette.testclient import TestClient

from shardplan.base.files import DATA, example_files
from shardplan.web.app import create_app
from shardplan.web.budgets import OPERATIONS
from shardplan.web.pages import VIEWS, View, static_url
from shardplan.web.pages.decide import DECISIONS
from shardplan.web.settings import ServerSettings

SMALL = "model=llama-3.1-8b&cluster=dgx-h100&gpus=16&lock.tp=2&lock.pp=2&lock.cp=1&lock.micro_batch_size=1"
SCRIPT = example_files()["launch.sh"].decode()


SAID: dict[str, tuple[str, ...]] = {
    "/trust/answer": ("1,448 predictions", "of 1,448 runs"),
    "/trust/answer?run_family=bloom&quantity=peak_memory": ("bloom-0",),
    "/trust/run?run=ds-azure-gpt-2t": ("micro-batch 8", "deepspeed-azure", "the description leaves out", "14.4 min"),
    "/trust/answer?run_text=no-such-thing": ("Show all runs",),
    f"/step/answer?{SMALL}": ("a step, simulated", "step/timeline?model=llama-3.1-8b"),
    f"/step/schedules?{SMALL}": ("1f1b", "gpipe", "this plan"),
    f"/step/answer?{SMALL}&show=tp=2;pp=4": ("pp 4",),
    "/published/limits?device=a100-sxm-80gb": ("nothing ends in time beyond", "a100-sxm-80gb"),
    f"/published/answer?{SMALL}": ("calculator", "subramanian2024", "data-movement", "searcher"),
    "/published/answer?model=qwen3-30b-a3b&cluster=dgx-h100&gpus=16&lock.tp=1&lock.pp=1": ("Cannot say",),
    "/published/figure?figure=F8": ("data-chart=",),
    f"/decide/answer?{SMALL}&decide=budget&budget_tokens=1B&ops.nothing=1": (),
    **{
        f"/decide/answer?{SMALL}&decide={query}": (text, "data-chart=")
        for query, text in (
            ("scale&sizes=8,16", "Pays: At every size up to 16"),
            ("vary&over=global_batch_size&values=64,128", "Most tokens per second at global batch size"),
            ("vary&over=set.inter_node_bandwidth&values=25 GB/s,50 GB/s", "50 GB/s"),
            ("scale", "Pays: At every size up to 32"),
            ("pareto_sizes&sizes=8,16", "8 accelerators: "),
            ("pareto_sizes&sizes=8,16&tokens=1T", "Cheapest</b> 8 accelerators: "),
            ("pareto", "is better in every respect than one of these"),
            ("sensitivity", "Pays: "),
            ("fit&sought=sequence_length", "The largest sequence length that fits is"),
            ("fit&sought=gpus", "The smallest number of accelerators that fits is"),
            ("whatif&change.1=precision&to.1=fp8&change.2=gpus&to.2=32", "Before and after all changes"),
            ("budget&budget_tokens=1T", "on 16 x NVIDIA H100"),
            ("budget&budget_tokens=1T&budget_clusters=dgx-h100,dgx-b200", "dgx-b200</td>"),
        )
    },
}
"""What the answers at these addresses say."""
REFUSED = (
    *("/trust/answer?quantity=luck", "/trust/answer?by=weather", "/trust/answer?drawn=pie"),
    *(f"/step/answer?{SMALL}&show=tp=3", f"/step/answer?{SMALL}&step_schedule=../x.csv"),
    *(f"/export/answer?{SMALL}&to=../etc", "/published/limits?device=/etc/passwd", "/published/figure?figure=F99"),
    f"/decide/answer?{SMALL}&decide=budget&budget_tokens=1B&ops.{next(iter(OPERATIONS))}=many",
    *(
        f"/decide/answer?{SMALL}&decide={query}"
        for query in (
            *("luck", "scale&sizes=many", "budget&budget_limit=days", "fit&sought=luck", "whatif&to.1="),
            *("whatif&change.1=cluster&to.1=/etc/passwd", "whatif&change.1=tp&to.1=2"),
        )
    ),
)


@pytest.mark.parametrize("address", SAID)
def test_an_address_has_its_answer(client: TestClient, address: str) -> None:
    found = client.get(address)
    assert found.status_code == 200, found.text
    assert [text for text in SAID[address] if text not in found.text] == []
    assert "nano-020" not in found.text or address == "/trust/answer"


@pytest.mark.parametrize("address", REFUSED)
def test_what_a_view_does_not_know_is_refused(client: TestClient, address: str) -> None:
    found = client.get(address)
    assert found.status_code == 422
    assert "Fix" in found.text or not address.startswith("/trust")


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


def test_markup_in_a_filter_is_text(client: TestClient) -> None:
    page = client.get("/trust", params={"run_text": '"><script>alert(1)</script>'}).text
    assert "<script>alert" not in page


def test_an_audit_reads_judges_and_improves(client: TestClient) -> None:
    found = audited(client, script=SCRIPT, audit_cluster="dgx-h100")
    assert "no rule is broken; it fits" in found
    assert "+ --num-virtual-stages-per-pipeline-rank" in found
    assert "70.6B parameters" in found


def test_an_audit_shows_the_values_that_break_a_rule(client: TestClient) -> None:
    assert "tp 3 with 8 key-value heads" in audited(
        client, script=SCRIPT.replace("TP:-8", "TP:-3"), audit_cluster="dgx-h100"
    )


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


def test_the_timeline_is_part_of_the_page_and_a_file_to_keep(client: TestClient) -> None:
    answer = client.get(f"/step/answer?{SMALL}").text
    assert 'id="t-data"' in answer
    page = client.get(f"/step?{SMALL}")
    assert "unsafe" not in page.headers["Content-Security-Policy"]
    for file in re.findall(r'(?:src|href)="(static/[0-9a-f]+/timeline/[a-z]+\.(?:js|css))"', page.text):
        assert client.get(f"/{file}").status_code == 200
    kept = client.get(f"/step/timeline?{SMALL}")
    assert kept.headers["Content-Disposition"] == 'attachment; filename="timeline.html"'
    assert 'id="t-data"' in kept.text
    assert client.get(f"/step/timeline.svg?{SMALL}").headers["Content-Type"] == "image/svg+xml"


def test_the_trace_is_a_file_of_events(client: TestClient) -> None:
    trace = client.get(f"/step/trace.json?{SMALL}")
    assert "attachment" in trace.headers["Content-Disposition"]
    assert trace.json()["traceEvents"]


@pytest.mark.parametrize("to", ["megatron-lm", "torchtitan"])
def test_export_writes_files_or_says_why_not(client: TestClient, to: str) -> None:
    found = client.get(f"/export/answer?{SMALL}&to={to}")
    assert found.status_code == 200
    assert ('id="file-1"' in found.text) != (f"Plan for {to}" in found.text)


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
    assert "Nearest to your question" not in client.get("/trust/answer").text


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("POST", "/healthz", {"GET", "HEAD"}),
        ("POST", "/api/models", {"GET", "HEAD"}),
        ("GET", "/api/plan", {"POST"}),
        ("POST", "/plotly.min.js", {"GET", "HEAD"}),
        ("DELETE", "/step", {"GET", "HEAD"}),
        ("GET", "/open", {"POST"}),
    ],
)
def test_an_address_that_does_not_take_a_method_says_which_it_takes(
    client: TestClient, method: str, path: str, allowed: set[str]
) -> None:
    refused = client.request(method, path)
    assert refused.status_code == 405
    assert set(refused.headers["Allow"].split(", ")) == allowed


@pytest.mark.parametrize(
    ("fields", "field", "said"),
    [
        ("model=&cluster=dgx-h100&gpus=8", "model", "No model is named"),
        ("model=llama-3.1-8b&cluster=&gpus=8", "cluster", "No cluster is named"),
        ("model=llama-3.1-8b&cluster=dgx-h100&gpus=", "gpus", "No number of accelerators is given"),
        ("model=config.json&cluster=dgx-h100&gpus=8&config=", "config", "The config.json is empty"),
    ],
)
def test_an_empty_field_is_not_answered_as_something_else(
    client: TestClient, fields: str, field: str, said: str
) -> None:
    refused = client.get(f"/answer?{fields}", headers={"HX-Request": "true"})
    assert refused.status_code == 422
    assert f'data-wrong="{field}"' in refused.text
    assert said in refused.text


@pytest.mark.parametrize(
    ("fields", "fixes"),
    [
        ("model=llama-3.1-71b", {"model=llama-3.1-70b", "model=llama-3.2-1b", "model=llama-3.1-8b"}),
        ("cluster=dgx-a100&precision=fp8", {"precision=bf16", "precision=fp16", "precision=fp32"}),
        ("lock.sharding=zero9", {"lock.sharding=zero1", "lock.sharding=zero2", "lock.sharding=zero3"}),
        ("gpus=8x8x8", set()),
    ],
)
def test_what_an_error_offers_is_one_click_away(client: TestClient, fields: str, fixes: set[str]) -> None:
    refused = client.get(f"/answer?{fields}", headers={"HX-Request": "true"})
    assert refused.status_code == 422
    offered = {*re.findall('data-set="([^"]+)"', refused.text)}
    assert fixes <= offered
    assert bool(fixes) == bool(offered)
    assert not offered & {*fields.split("&")}


@pytest.mark.parametrize(("cluster", "has_fp8"), [("dgx-h100", True), ("dgx-a100", False)])
def test_the_form_offers_the_precisions_that_the_accelerator_has(
    client: TestClient, cluster: str, *, has_fp8: bool
) -> None:
    page = client.get(f"/?cluster={cluster}").text
    assert ('<option value="fp8">' in page) == has_fp8
    assert '<option value="fp8" selected>' in client.get(f"/?cluster={cluster}&precision=fp8").text


def test_plans_and_kept_answers_are_columns_and_what_breaks_a_rule_says_so(client: TestClient) -> None:
    kept = f"?{SMALL}&precision=fp8&show=tp=2"
    found = client.get(f"/compare?{SMALL}&{urlencode({'pin': 'tp=4'})}&{urlencode({'pin': kept})}&pin=tp=3").text
    assert found.count('<th scope="col">') == 1 + 3
    precision = re.search(r">precision</th>(.*?)</tr>", found, re.DOTALL)
    assert precision is not None
    assert re.findall("<td>(.*?)</td>", precision[1]) == ["bf16", "bf16", "fp8"]
    assert re.search(r'class="note">tp 3: .*3', found)
    assert "side" not in client.get(f"/compare?{SMALL}").text


def decided(client: TestClient, more: str) -> str:
    response = client.get(f"/decide/answer?{SMALL}&decide={more}")
    assert response.status_code == 200
    return response.text


def charts(text: str) -> dict[str, Any]:
    """The figures of an answer by their titles."""
    titles = re.findall(r'<figure class="chart" aria-label="([^"]+)"', text)
    return dict(zip(titles, map(json.loads, re.findall(r'data-chart="[^"]+">(.*?)</script>', text)), strict=True))


def test_cards_have_the_answers_that_are_known(client: TestClient) -> None:
    first = decided(client, "scale&sizes=8,16")
    said = re.search('data-said="([^"]+)[.]"', first)
    assert said is not None
    second = decided(client, "whatif&sizes=8,16&change.1=precision&to.1=fp8")
    cards = dict(re.findall(r'data-decide="(\w+)".*?<span data-line>(.*?)</span>', second))
    assert {*cards} == {*DECISIONS}
    assert cards["scale"] == said[1]
    assert cards["budget"] == DECISIONS["budget"].hint


def test_the_axis_of_a_waterfall_begins_near_what_changes(client: TestClient) -> None:
    found = charts(decided(client, "whatif&change.1=inter_node_bandwidth&to.1=10 GB/s"))
    figure = found["before and after, term by term"]
    low, high = figure["layout"]["xaxis"]["range"]
    moved = [
        end
        for bars in figure["data"]
        for base, length in zip(bars["base"], bars["x"], strict=True)
        if length and base
        for end in (base, base + length)
    ]
    assert 0 < low < min(moved)
    assert max(moved) < high
    assert (max(moved) - min(moved)) > 0.5 * (high - low)


def test_the_cost_of_a_run_is_drawn_against_its_time(client: TestClient) -> None:
    found = charts(decided(client, "budget&budget_tokens=1T&budget_price=2"))
    assert {*found} == {"Money against time, with accelerators"}
    (points,) = found["Money against time, with accelerators"]["data"]
    assert points["text"] == ["32", "16", "8"]
    assert points["x"] == sorted(points["x"])


def test_fit_says_what_fits_at_the_upper_end_of_its_band(client: TestClient) -> None:
    found = decided(client, "fit&sought=sequence_length")
    largest = re.search(r"that fits is ([\d,]+) tokens", found)
    surely = re.search(r"upper end of its memory band ([\d,]+) tokens still fits", found)
    assert largest is not None
    assert surely is not None
    assert int(surely[1].replace(",", "")) < int(largest[1].replace(",", ""))


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


def test_other_software_that_would_help_is_one_click_away(client: TestClient) -> None:
    found = client.get("/why?model=deepseek-v3&cluster=dgx-h100&gpus=2048&software=moe_dispatcher=alltoall").text
    assert re.search(r'href="[^"]*software=moe_dispatcher=(?:deepep|hybridep)[^"]*"[^>]*>Ask that', found)
    assert "plan with --software" not in found


def test_progress_of_an_unknown_ticket_is_nothing(client: TestClient) -> None:
    assert client.get("/decide/progress?ticket=ab").json() == {"done": 0, "of": 0}
