"""Mutants are faults: each parses, differs from the formula, and stays within it."""

from __future__ import annotations

import ast
from pathlib import Path

from tests.mutation.equivalent import EQUIVALENT
from tests.mutation.mutants import ROOMS, files_of, mutants_of, mutants_of_file
from tests.mutation.run import mirrored, sample

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "shardplan"

SOURCE = b'''"""Text with 1 + 1."""


def size(count: int, rate: float = 2.0) -> float:
    """Of \xc2\xb5 things. [bytes]"""
    assert count + 1
    pairs = zip(count, rate, strict=True)
    return max(count * rate, 0.25) if count > 1 else -rate
'''


def test_every_kind_of_change_is_made() -> None:
    changed = {(mutant.before, mutant.after) for mutant in mutants_of_file(SOURCE, "workload/x.py")}
    assert changed >= {
        ("2.0", "3.0"), ("2.0", "1.0"), ("0.25", "0.275"), ("0.25", "0.225"),
        ("count * rate", "(count / rate)"), ("count * rate", "(count)"), ("count * rate", "(rate)"),
        ("max(count * rate, 0.25)", "min(count * rate, 0.25)"), ("count > 1", "(count >= 1)"),
        ("count > 1", "(count <= 1)"), ("-rate", "(rate)"),
    }  # fmt: skip
    assert not any("count + 1" in before or before == "True" for before, _ in changed)


def test_mutants_parse_and_are_another_formula() -> None:
    for room in ROOMS:
        for path in files_of(PACKAGE, room):
            source = path.read_bytes()
            original = ast.unparse(ast.parse(source))
            for mutant in mutants_of_file(source, path.relative_to(PACKAGE).as_posix())[::40]:
                assert ast.unparse(ast.parse(mutant.applied(source))) != original, mutant.name


def test_a_seed_gives_a_sample_of_all_rooms() -> None:
    first, again, other = (sample(PACKAGE, list(ROOMS), 150, seed) for seed in (1, 1, 2))
    assert first == again != other
    assert all(any(mutant.path.startswith(room) for mutant in first) for room in ROOMS)
    mutants = mutants_of(PACKAGE)
    assert len({mutant.key for mutant in mutants}) == len(mutants)


def test_a_larger_sample_or_one_of_fewer_rooms_holds_the_same_mutants() -> None:
    small, large = (sample(PACKAGE, list(ROOMS), size, 1) for size in (100, 200))
    assert large[:100] == small
    costs = [mutant for mutant in large if mutant.path.startswith("physics/costs/")]
    assert sample(PACKAGE, ["physics/costs"], len(costs), 1) == costs


def test_every_equivalent_mutant_is_one_of_the_formulas_as_they_are() -> None:
    """An entry whose lines were changed names no mutant any more."""
    assert set(EQUIVALENT) <= {mutant.fault for mutant in mutants_of(PACKAGE)}
    assert all(EQUIVALENT.values())


def test_mirrored_a_formula_are_those_of_its_folder_its_own_first() -> None:
    own = mirrored(ROOT, "physics/workload/attention.py")
    assert own == [str(Path("tests/physics/workload/test_attention.py")), str(Path("tests/physics/workload"))]
    assert mirrored(ROOT, "physics/schedules/one_f_one_b.py") == [str(Path("tests/physics/schedules"))]
    parts = mirrored(ROOT, "estimation/parts/pipelines.py")
    assert parts == [str(Path("tests/estimation") / name) for name in ("test_pipelines.py", "test_parts.py", "")]


def test_every_formula_has_a_folder_of_tests() -> None:
    folders = {mirrored(ROOT, mutant.path)[-1] for mutant in mutants_of(PACKAGE)}
    assert folders == {str(Path("tests") / room) for room in ROOMS}
