"""Runs the notebooks of ``examples/`` and stores what their cells show; with ``--check`` says whether that still holds.

It runs code cells in order in one namespace, as Jupyter does, and needs nothing but Python: an output is what a cell
prints, and the text, page or picture of the expression that it ends with. Pictures are not compared.
"""

from __future__ import annotations

import ast
import base64
import contextlib
import io
import json
import sys
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent.parent / "examples"


def run_notebook(path: Path) -> dict[str, Any]:
    """The notebook with the outputs of its cells. What a cell raises is raised."""
    notebook: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    namespace: dict[str, Any] = {"__name__": "__main__"}
    number = 0
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            number += 1
            cell["execution_count"] = number
            cell["outputs"] = _outputs("".join(cell["source"]), namespace, number, f"{path.name}[{number}]")
    return notebook


def _outputs(source: str, namespace: dict[str, Any], number: int, label: str) -> list[dict[str, Any]]:
    """What a cell prints, and what it ends with."""
    body = ast.parse(source, label).body
    last = body[-1] if body else None
    statements = body[:-1] if isinstance(last, ast.Expr) else body
    printed, value = io.StringIO(), None
    with contextlib.redirect_stdout(printed):
        exec(compile(ast.Module(statements, []), label, "exec"), namespace)  # noqa: S102  # what a notebook is for
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), label, "eval"), namespace)  # noqa: S307
    outputs: list[dict[str, Any]] = []
    if printed.getvalue():
        lines = printed.getvalue().splitlines(keepends=True)
        outputs.append({"name": "stdout", "output_type": "stream", "text": lines})
    if value is not None:
        result = {"execution_count": number, "metadata": {}, "output_type": "execute_result"}
        outputs.append({"data": _shown(value), **result})
    return outputs


def _shown(value: Any) -> dict[str, Any]:
    """A value as a notebook shows it."""
    if hasattr(value, "_repr_png_"):
        picture = base64.b64encode(value._repr_png_()).decode("ascii")
        return {"image/png": picture, "text/plain": [f"<{type(value).__name__} {value.name}>"]}
    text = {"text/plain": repr(value).splitlines(keepends=True)}
    if hasattr(value, "_repr_html_"):
        return {"text/html": value._repr_html_().splitlines(keepends=True)} | text
    return text


def texts(notebook: dict[str, Any]) -> list[Any]:
    """All that the cells show, pictures left out."""
    outputs = [output for cell in notebook["cells"] for output in cell.get("outputs", [])]
    return [output.get("text", output.get("data", {}).get("text/plain")) for output in outputs]


def main(arguments: list[str]) -> int:
    """Runs or checks every notebook; returns the exit status."""
    status = 0
    for path in sorted(FOLDER.glob("*.ipynb")):
        stored, found = json.loads(path.read_text(encoding="utf-8")), run_notebook(path)
        if "--check" not in arguments:
            path.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        elif texts(stored) != texts(found):
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
