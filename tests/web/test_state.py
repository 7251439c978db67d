"""A question travels in an address and comes back as it was; names are names, and errors know their field."""

from __future__ import annotations

import json
from urllib.parse import parse_qsl

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardplan.base.fields import described
from shardplan.base.files import DATA
from shardplan.inputs.plan import Plan
from shardplan.web.state import JOB, SETS, FieldError, PageQuestion, in_words, plan_code, plan_in
from shardplan.web.verdict import changed, without_flags

TEXT = st.text(min_size=1, max_size=30).map(str.strip).filter(bool)
QUESTIONS = st.builds(
    PageQuestion,
    model=TEXT,
    cluster=TEXT,
    gpus=TEXT,
    stack=TEXT,
    job=st.dictionaries(st.sampled_from(JOB), TEXT, max_size=4),
    sets=st.dictionaries(st.sampled_from(SETS), TEXT, max_size=3),
    locks=st.dictionaries(st.sampled_from(["tp", "pp", "recompute"]), TEXT, max_size=3),
    software=st.just("") | TEXT,
    price=st.just("") | TEXT,
    pins=st.lists(TEXT, max_size=4, unique=True).map(tuple),
    show=st.just("") | TEXT,
)


@given(QUESTIONS)
def test_a_question_comes_back_from_its_address(question: PageQuestion) -> None:
    assert PageQuestion.of(parse_qsl(question.query(), keep_blank_values=True)) == question


def test_a_first_visit_is_a_question() -> None:
    posed = PageQuestion().posed()
    assert posed.question.num_accelerators == 512
    assert posed.stack is not None


@pytest.mark.parametrize(
    ("field", "question"),
    [
        ("model", PageQuestion(model="llama-3.1-71b")),
        ("model", PageQuestion(model="")),
        ("model", PageQuestion(model="/etc/passwd")),
        ("model", PageQuestion(model="../models/llama-3.1-8b.json")),
        ("cluster", PageQuestion(cluster="./cluster.yaml")),
        ("accelerator", PageQuestion(accelerator="h101")),
        ("stack", PageQuestion(stack="stack.yaml")),
        ("gpus", PageQuestion(gpus="many")),
        ("gpus", PageQuestion(gpus="")),
        ("sequence_length", PageQuestion(job={"sequence_length": "-1"})),
        ("precision", PageQuestion(job={"precision": "fp7"})),
        ("set.memory", PageQuestion(sets={"memory": "80 apples"})),
        ("software", PageQuestion(software="kernels")),
        ("software", PageQuestion(software="kernels=none")),
        ("software", PageQuestion(software="kernel_names=eager")),
        ("config", PageQuestion(config="[1]")),
        ("config", PageQuestion(config="{")),
    ],
)
def test_an_error_knows_its_field(field: str, question: PageQuestion) -> None:
    with pytest.raises(FieldError) as raised:
        question.posed()
    assert raised.value.field == field
    assert raised.value.rule
    assert "root:" not in str(raised.value)


def test_a_pasted_config_is_the_model() -> None:
    config = json.loads((DATA / "models" / "llama-3.1-8b.json").read_text())
    config["num_hidden_layers"] = 24
    question = PageQuestion(model="config.json", config=json.dumps(config))
    assert question.posed().question.model.num_hidden_layers == 24
    assert question.with_values(model="llama-3.1-8b").posed().question.model.num_hidden_layers == 32


@pytest.mark.parametrize(
    ("fields", "model", "cluster", "size"),
    [
        ({"model": "meta-llama/Llama-3.1-70B", "gpus": "8x8"}, "llama-3.1-70b", "dgx-h100", 64),
        ({"cluster": "p4d.24xlarge", "gpus": "64"}, "llama-3.1-70b", "aws-p4d", 64),
        ({"cluster": "Standard_ND96isr_H100_v5", "gpus": "2x8"}, "llama-3.1-70b", "azure-nd-h100-v5", 16),
    ],
    ids=["a model of the hub", "an instance of AWS", "a size of Azure"],
)
def test_a_form_reads_the_words_that_people_type(fields: dict[str, str], model: str, cluster: str, size: int) -> None:
    question = PageQuestion.of({"model": "llama-3.1-70b", "cluster": "dgx-h100", **fields}.items()).posed().question
    assert (question.model.name, question.cluster.name, question.num_accelerators) == (model, cluster, size)


def test_texts_name_fields_of_the_form() -> None:
    assert in_words("set --sequence-length to 8k") == "set sequence length to 8k"
    assert in_words("--gpus is 0") == "the number of accelerators is 0"


PLANS = (
    Plan(),
    Plan(tp=8, pp=4, vp=5, recompute="layernorm,activation"),
    Plan(tp=2, sharding="hsdp", sharding_degree=64, overlap_dp=False),
    Plan(pp=4, stage_layers=(3, 4, 4, 3), recompute="full", recompute_num_layers=2, offload="optimizer"),
)


@pytest.mark.parametrize("plan", PLANS)
def test_a_plan_comes_back_from_its_code(plan: Plan) -> None:
    assert plan_in(plan_code(plan)) == (plan, {*described(Plan)})


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("use 480 of the 512: 2.0 % more tokens/s (--gpus 480).", "use 480 of the 512: 2.0 % more tokens/s."),
        ("--fp8-opt would save 3 s: plan with --software kernels=fused.", "--fp8-opt would save 3 s."),
        ("twice the bandwidth would save 3 s (4.0 %).", "twice the bandwidth would save 3 s (4.0 %)."),
    ],
)
def test_flags_of_the_command_line_are_left_out(text: str, shown: str) -> None:
    assert without_flags(text) == shown


def test_suggested_changes_are_made() -> None:
    asked = PageQuestion(locks={"tp": "8", "pp": "2"})
    assert changed(asked, "use 1,024 accelerators: --gpus 1024").gpus == "1024"
    assert changed(asked, "leave tp free").locks == {"pp": "2"}
    assert changed(asked, "leave tp, pp free").locks == {}
    assert changed(asked, "keep states in host memory: --fix offload=optimizer").locks["offload"] == "optimizer"
    other = changed(
        PageQuestion(software="kernels=eager, moe_dispatcher=alltoall"),
        "it saves 3 s: plan with --software moe_dispatcher=deepep.",
    )
    assert other.software == "kernels=eager, moe_dispatcher=deepep"
    assert other.posed().question.job.software.kernels == "eager"
    lighter = changed(asked, "keep both in bf16: --grad-dtype bf16 --moment-dtype bf16")
    assert lighter.job == {"grad_dtype": "bf16", "moment_dtype": "bf16"}
