"""A plan as a configuration file of Accelerate and a launch line that trains a Hugging Face model with it.

Names: ``src/accelerate/commands/config/config_args.py``, ``commands/launch.py`` and ``parallelism_config.py`` at
16cb6eb8; those of the plan are in ``data/launch/accelerate.yaml``.
"""

from __future__ import annotations

from typing import Any, Final

import yaml

from shardplan.launch.export.hugging_face import MODEL_FEATURES, placeholders, relies_on, training_options
from shardplan.launch.export.shell import Given, Launcher, LaunchText, blocking, exported, quoted
from shardplan.launch.export.written import Export, LaunchCase, head, keys, losses, nested

SAID: Final = ("blocking_launches",)


def export(case: LaunchCase) -> Export:
    """The YAML file with its launch script, and what they do not express."""
    features = [name for name in case.decoder.features if name not in MODEL_FEATURES]
    lost, relied = losses(case, said=SAID, features=features), relies_on(case)
    values = nested(keys(case.options.options))
    of_script = values.pop("script")
    script = LaunchText(
        lost=lost,
        relies_on=relied,
        placeholders=placeholders(case),
        environment=blocking(case),
        options=training_options(of_script),
        program=[Given("TRANSFORMERS", after="/examples/pytorch/language-modeling/run_clm.py")],
    )
    comment = "".join(f"# {line}\n" for line in head(case, lost, ()))
    document = yaml.safe_dump(_document(case, values), sort_keys=False)
    return exported(case, script, launcher=_launcher(case), beside={f"{case.stem}.yaml": comment + document})


def _document(case: LaunchCase, values: dict[str, Any]) -> dict[str, Any]:
    return {
        "compute_environment": "LOCAL_MACHINE",
        "distributed_type": values.pop("distributed_type"),
        "mixed_precision": values.pop("mixed_precision"),
        "num_machines": case.num_nodes,
        "num_processes": values.pop("num_processes"),
        "main_process_port": 29500,
        "rdzv_backend": "c10d" if case.num_nodes > 1 else "static",
        "main_training_function": "main",
        "use_cpu": False,
        **values,
    }


def _launcher(case: LaunchCase) -> Launcher:
    words = ["accelerate", "launch", "--config_file", quoted(f"{case.stem}.yaml")]
    if case.num_nodes == 1:
        return Launcher(words=words)
    return Launcher(words=["srun", *words, "--main_process_ip", '"$HEAD_NODE"'], environment=("export HEAD_NODE",))
