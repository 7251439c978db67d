"""How large the project is: lines, files, statements and docstrings of source and tests, by package.

    python benchmarks/size.py                    of this checkout
    python benchmarks/size.py --json sizes.json  as a record too
    python benchmarks/size.py OTHER_CHECKOUT     of another, such as a worktree of an earlier commit

Lines are those of Python files. Next to them is what packing lines would not change: statements of the syntax tree and
lines of public docstrings; and where knowledge may have moved: lines of data (YAML) and of templates.
"""

from __future__ import annotations

import ast
import json
import statistics
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

SMALL = 60
"""Lines below which a file is small."""
SURFACES = frozenset({"launch", "web", "methods", "published"})
"""Packages that the core is counted without."""


@dataclass(frozen=True)
class Size:
    """How large some Python files are."""

    lines: int
    files: int
    small_files: int
    statements: int
    docstring_lines: int
    """Of public modules, classes and functions."""
    functions: int
    median_function_lines: float


def size_of(paths: list[Path]) -> Size:
    """Counts over some Python files."""
    texts = [path.read_text(encoding="utf-8") for path in paths]
    lines = [len(text.splitlines()) for text in texts]
    nodes = [node for text in texts for node in ast.walk(ast.parse(text))]
    functions = [node for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    lengths = [function.end_lineno - function.lineno + 1 for function in functions if function.end_lineno]
    return Size(
        lines=sum(lines),
        files=len(paths),
        small_files=sum(length < SMALL for length in lines),
        statements=sum(isinstance(node, ast.stmt) for node in nodes),
        docstring_lines=sum(map(_docstring_lines, nodes)),
        functions=len(functions),
        median_function_lines=statistics.median(lengths) if lengths else 0,
    )


def _docstring_lines(node: ast.AST) -> int:
    """Lines of the docstring of a module, or of a public class or function."""
    if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) or getattr(node, "name", "").startswith("_"):
        return 0
    return len((ast.get_docstring(node) or "").splitlines())


def sizes_of(root: Path) -> dict[str, Size]:
    """Sizes of each package of a checkout, of the source, of its core and of the tests."""
    source = root / "src" / "shardplan"
    packages: dict[str, list[Path]] = {}
    for path in sorted(source.rglob("*.py")):
        inner = path.relative_to(source).parts
        packages.setdefault(inner[0] if len(inner) > 1 else "(top)", []).append(path)
    every = [path for paths in packages.values() for path in paths]
    core = [path for name, paths in packages.items() if name not in SURFACES for path in paths]
    summed = {"source": every, "core": core, "tests": sorted((root / "tests").rglob("*.py"))}
    return {name: size_of(paths) for name, paths in {**dict(sorted(packages.items())), **summed}.items()}


def data_lines(root: Path) -> dict[str, int]:
    """Lines of data files and of templates of the package."""
    found = {"data": ("*.yaml",), "templates": ("*.html", "*.jinja", "*.j2", "*.js", "*.css")}
    return {
        name: sum(
            len(path.read_text(encoding="utf-8").splitlines())
            for pattern in patterns
            for path in (root / "src" / "shardplan").rglob(pattern)
        )
        for name, patterns in found.items()
    }


def main(arguments: list[str]) -> None:
    """Prints the table, and writes the record where one is asked for."""
    target = arguments.pop(arguments.index("--json") + 1) if "--json" in arguments else None
    places = [Path(argument) for argument in arguments if argument != "--json"]
    root = (places or [Path(__file__).parents[1]])[0]
    sizes, data = sizes_of(root), data_lines(root)
    print(f"{'':<14}{'lines':>9}{'files':>7}{'<' + str(SMALL):>6}{'statements':>12}{'docstrings':>12}{'functions':>11}")
    for name, size in sizes.items():
        counted = (size.lines, size.files, size.small_files, size.statements, size.docstring_lines, size.functions)
        print(f"{name:<14}" + "".join(f"{n:>{w},}" for n, w in zip(counted, (9, 7, 6, 12, 12, 11), strict=True)))
    print(
        f"median function: {sizes['source'].median_function_lines:g} lines; "
        + ", ".join(f"{n} {v:,}" for n, v in data.items())
    )
    if target:
        record = {name: asdict(size) for name, size in sizes.items()} | {"lines_of": data}
        Path(target).write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
