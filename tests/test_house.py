"""The rules of the house: one-way imports, honest public names, one version, nothing of one machine in the tree."""

import ast
import re
import shutil
import subprocess
import tomllib
from collections import Counter
from importlib import metadata
from pathlib import Path

from importlinter.cli import lint_imports

import shardplan

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "shardplan"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

ONE_MACHINE = re.compile(
    r"(?<![\w.*-])/(?:work|root|home|Users|tmp)/\w"  # absolute paths of a working machine
    r"|file:/{3}"
    r"|(?:index|extra-index)-url|find-links"  # where packages come from is the user's business
    r"|https?://(?:pypi\.org|files\.pythonhosted|registry\.npm)"
)


def test_imports_run_one_way() -> None:
    assert lint_imports(config_filename=str(ROOT / "pyproject.toml"), cache_dir=None) == 0


def _committed_files() -> list[Path]:
    git = shutil.which("git")
    if git is None or not (ROOT / ".git").exists():
        return [path for path in SOURCE.rglob("*") if path.is_file() and path.suffix != ".pyc"]
    listed = subprocess.run([git, "-C", str(ROOT), "ls-files", "-z"], check=True, capture_output=True, text=True)
    return [path for name in listed.stdout.split("\0") if name and (path := ROOT / name).is_file()]


def test_no_file_names_a_machine_or_a_package_index() -> None:
    found = {
        f"{path.relative_to(ROOT)}:{number}"
        for path in _committed_files()
        for number, line in enumerate(path.read_bytes().decode("utf-8", errors="replace").splitlines(), start=1)
        if path != Path(__file__) and ONE_MACHINE.search(line)
    }
    assert found == set()


def test_one_version() -> None:
    assert shardplan.__version__ == PROJECT["version"] == metadata.version("shardplan")


def test_packages_hold_the_examples() -> None:
    targets = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]
    assert targets["wheel"]["force-include"] == {"examples": "shardplan/examples"}
    assert "custom" in targets["wheel"]["hooks"]  # hatch_build.py
    needed = {"/hatch_build.py", "/src", "/tests", "/docs", "/examples", "/.ci"}
    assert needed <= set(targets["sdist"]["include"])
    assert all((ROOT / name.lstrip("/")).exists() for name in targets["sdist"]["include"])


def test_changelog_has_a_place_for_the_next_change() -> None:
    headings = re.findall(r"^## \[(.+?)\]", (ROOT / "CHANGELOG.md").read_text(), flags=re.MULTILINE)
    assert headings[0] == "Unreleased"


def test_constraints_pin_every_requirement_and_hold_nothing_but_pins() -> None:
    lines = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if not line.startswith("#")]
    pins = [re.fullmatch(r"([\w.-]+)==[\w.]+", line) for line in lines]
    assert all(pins), lines
    pinned = {_normalised(pin[1]) for pin in pins if pin}
    wanted = [
        *PROJECT["dependencies"],
        *(name for extra in PROJECT["optional-dependencies"].values() for name in extra),
    ]
    names = {_normalised(re.split(r"[\[<>=~! ]", requirement)[0]) for requirement in wanted}
    assert names - {"shardplan"} - pinned == set()


def _normalised(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def test_ci_runs_the_test_command_of_the_readme() -> None:
    command = (
        "python3 -m venv .venv && .venv/bin/pip install -c constraints.txt -e '.[dev]' && .venv/bin/python -m pytest"
    )
    for document in ("README.md", "CONTRIBUTING.md", ".ci/run"):
        assert command in (ROOT / document).read_text(), document


def test_no_two_public_classes_share_a_name() -> None:
    homes: dict[str, list[str]] = {}
    for path in SOURCE.rglob("*.py"):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes.setdefault(node.name, []).append(str(path.relative_to(SOURCE)))
    assert {name: places for name, places in homes.items() if len(places) > 1} == {}


def test_no_folder_holds_more_than_twenty_modules() -> None:
    folders = Counter(path.parent for path in SOURCE.rglob("*.py") if path.name != "__init__.py")
    assert {str(folder): number for folder, number in folders.items() if number > 20} == {}


def test_user_files_are_read_in_one_place() -> None:
    reads = re.compile(r"\.read_text\(|\.read_bytes\(|\byaml\.(?:safe_)?load")
    readers = {str(path.relative_to(SOURCE)) for path in SOURCE.rglob("*.py") if reads.search(path.read_text())}
    own = {
        "methods/subramanian2024/figures.py",
        "calibrate/defaults.py",
        "web/pages/__init__.py",
        "launch/export/torchtitan.py",
        "plotting/page.py",
    }  # shipped files
    compared = {"launch/read/places.py"}  # whether two files are the same
    assert readers == {"base/files.py", "calibrate/microbench/torch_backend.py", *own, *compared}
