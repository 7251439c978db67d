"""Times kernels and collectives on the machine at hand, and turns the timings into constants of a profile."""

from shardplan.calibrate.microbench.measured import (
    Kept,
    Outcome,
    measurements_path,
    outcome_of,
    profile_from,
    profile_text,
    read_measurements,
    write_profile,
)
from shardplan.calibrate.microbench.records import Measurements
from shardplan.calibrate.microbench.run import accelerator_of, measure_on, run_microbenchmark

__all__ = [
    "Kept",
    "Measurements",
    "Outcome",
    "accelerator_of",
    "measure_on",
    "measurements_path",
    "outcome_of",
    "profile_from",
    "profile_text",
    "read_measurements",
    "run_microbenchmark",
    "write_profile",
]
