"""The filter of the table of plans searches all plans, and takes part of the picture."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from starlette.testclient import TestClient

from shardplan.web.answered import Filter
from shardplan.web.app import create_app
from shardplan.web.settings import ServerSettings

SMALL = "model=llama-3.1-8b&cluster=dgx-h100&gpus=16&global_batch_size=32"
STEP = re.compile(r'class="place">\d*</td><td class="n" data-v="([^"]+)"')
ROW = re.compile(r'data-code="([^"]+)"')


@pytest.mark.parametrize(
    ("text", "locks", "ranges", "words"),
    [
        ("tp 8, zero1", {"tp": "8", "sharding": "zero1"}, {}, ()),
        ("TP=8,mb 2", {"tp": "8", "micro_batch_size": "2"}, {}, ()),
        ("recompute full", {"recompute": "full"}, {}, ()),
        ("pipeline_model_parallel_size 4", {"pp": "4"}, {}, ()),
        ("step 7..9.5, memory 40..20", {}, {"step": (7.0, 9.5), "memory": (20e9, 40e9)}, ()),
        ("dp 16, blah", {}, {}, ("dp 16", "blah")),
        (" , ", {}, {}, ()),
    ],
)
def test_what_is_typed_is_values_ranges_or_words(
    text: str, locks: dict[str, str], ranges: dict[str, tuple[float, float]], words: tuple[str, ...]
) -> None:
    assert Filter.of(text) == (locks, ranges, words)


@pytest.fixture(scope="module")
def client() -> Iterator[TestClient]:
    with TestClient(create_app(ServerSettings(time_limit=120.0)), base_url="http://127.0.0.1:8321") as served:
        yield served


def found(client: TestClient, text: str) -> str:
    response = client.get("/plans", params={**dict(each.split("=") for each in SMALL.split("&")), "filter": text})
    assert response.status_code == 200
    return response.text


def test_values_that_no_shown_plan_has_are_searched_among_all(client: TestClient) -> None:
    shown = ROW.findall(found(client, ""))
    assert not any("recompute=full" in code for code in shown)
    all_of_them = ROW.findall(found(client, "recompute full"))
    assert all_of_them
    assert all("recompute=full" in code for code in all_of_them)


def test_what_no_plan_has_can_be_locked_to_see_why(client: TestClient) -> None:
    nothing = found(client, "tp 99")
    assert not ROW.findall(nothing)
    assert 'data-set="lock.tp=99"' in nothing


def test_a_part_of_the_picture_has_the_plans_in_it(client: TestClient) -> None:
    low = min(float(each) for each in STEP.findall(found(client, "")))
    times = [float(each) for each in STEP.findall(found(client, f"step {low:.4f}..{1.2 * low:.4f}"))]
    assert times
    assert all(low - 1e-4 <= each <= 1.2 * low + 1e-4 for each in times)


@pytest.mark.parametrize("text", ["", "tp 8"])
def test_where_no_plan_fits_no_table_is_promised(client: TestClient, text: str) -> None:
    question = {"model": "llama-3.1-405b", "cluster": "dgx-h100", "gpus": "8", "filter": text}
    response = client.get("/plans", params=question)
    assert response.status_code == 422
    assert "no plan fits" in response.text.lower()
