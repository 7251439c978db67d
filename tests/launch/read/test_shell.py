"""What is not decidable is named; no value from a branch that may not be taken is given."""

# ruff: noqa: PT018 - texts stand as they are written

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from shardplan.base.errors import InputError
from shardplan.launch.read import Script, Word, parse_script, read_script


def _words(script: Script, number: int = 0) -> tuple[Word, ...]:
    return script.commands[number].words


def test_environment_arguments_and_commands_are_asked_for_by_name_and_line() -> None:
    read = parse_script('A="--tp $TP"\nrun $A --pp ${2}\n  \nrun --host $(hostname -s)\n', "a.sh")
    assert [word.shown for word in _words(read)] == ["run", "--tp", "<env:TP>", "--pp", "<arg:2>"]
    assert {need.name: need.line for need in read.needs} == {"env:TP": 1, "arg:2": 2, "cmd:hostname -s": 4}
    given = parse_script('A="--tp $TP"\nrun $A --pp ${2}', "a.sh", env={"TP": "4"}, arguments=("x", "8"))
    assert [word.text for word in _words(given)] == ["run", "--tp", "4", "--pp", "8"]


def test_defaults_are_taken_and_named() -> None:
    read = parse_script('N=${NODES:-8}\nif [ -z "$MODE" ]; then MODE=a; fi\nrun $((N*2)) $MODE ${3:-x}', "a.sh")
    assert [(word.text, word.assumes) for word in _words(read)[1:]] == [
        ("16", ("env:NODES=8",)),
        ("a", ("env:MODE=",)),
        ("x", ("arg:3=x",)),
    ]


def test_no_value_of_a_branch_that_may_not_be_taken() -> None:
    read = parse_script(
        'T=1; A=(--x 1)\nif [ "$M" = big ]; then T=8; A+=(--y); run big; fi\nrun $T "${A[@]}" end', "a.sh"
    )
    assert read.commands[0].when == ('[ "$M" = big ]',)
    final = _words(read, 1)
    assert [word.text for word in final] == ["run", None, "--x", "1", None, "end"]
    assert final[1].needs == ("env:M",) and final[4].splits and read.commands[1].when == ()


def test_both_branches_that_agree_are_decided() -> None:
    read = parse_script('if [ "$M" = 1 ]; then T=4; U=1; else T=4; U=2; fi; run $T $U', "a.sh")
    assert [word.text for word in _words(read)] == ["run", "4", None]


def test_a_flag_that_is_added_in_one_branch_leaves_the_others_alone() -> None:
    read = parse_script('O="--tp 8"\n[ "$F" = 1 ] && O="$O --flash"\nO="$O --pp 4"\nrun $O', "a.sh")
    assert [word.text for word in _words(read)] == ["run", "--tp", "8", None, "--pp", "4"]
    assert _words(read)[3].splits


def test_usage_messages_do_not_end_the_reading() -> None:
    read = parse_script('if [ $# -lt 2 ]; then echo usage; exit 1; fi\n[ -z "$D" ] && exit 1\nrun $1', "a.sh")
    assert [word.shown for word in _words(read)] == ["run", "<arg:1>"]
    assert any("ends here unless" in note for note in read.notes)


def test_code_after_the_end_is_dead() -> None:
    read = parse_script("run 1\nexit 0\nrun 2", "a.sh")
    assert len(read.commands) == 1


def test_slurm_options_give_slurm_variables() -> None:
    read = parse_script(
        "#!/bin/bash\n#SBATCH --nodes=4 -n 8\n#SBATCH --gres=gpu:h100:8 # x\nrun $SLURM_NNODES\n#SBATCH --nodes=9",
        "a.sh",
    )
    assert {name: word.text for name, word in read.directives.items()} == {
        "nodes": "4",
        "ntasks": "8",
        "gres": "gpu:h100:8",
    }
    assert _words(read)[1].text == "4" and _words(read)[1].assumes == ("sbatch:nodes=4",)


def test_documents_that_the_script_writes() -> None:
    text = (
        'M=2; cat <<EOF > ds.json\n{"micro": $M, "world": $W,\n "name": "a-$W", "zero": {"stage": 1}}\nEOF\nrun ds.json'
    )
    document = parse_script(text, "a.sh").documents["ds.json"]
    assert document.tree == {"micro": 2, "world": None, "name": None, "zero": {"stage": 1}}
    assert document.values["world"].needs == ("env:W",)


def test_files_next_to_the_script_are_read(tmp_path: Path) -> None:
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "common.sh").write_text("TP=${TP:-4}\nsize() { echo $((TP * $1)); }\n")
    (tmp_path / "a.sh").write_text('. "$(dirname "$0")/conf/common.sh"\nrun $TP $(size 3)')
    assert [word.text for word in _words(read_script(tmp_path / "a.sh"))] == ["run", "4", "12"]
    assert _words(read_script(tmp_path / "a.sh"))[1].file.endswith("common.sh")


def test_words_say_where_they_are_written() -> None:
    read = parse_script('A=(\n --tp 8\n --pp 4\n)\nO="--x \\\n --y"\nrun ${A[@]} $O', "a.sh")
    assert [(word.text, word.line) for word in _words(read)[1:]] == [
        ("--tp", 2), ("8", 2), ("--pp", 3), ("4", 3), ("--x", 5), ("--y", 6),
    ]  # fmt: skip


def test_unused_variables_and_placeholders_are_noted() -> None:
    notes = " ".join(parse_script("EXTRA='--tp 8'\nrun --data '<path/to/data>'", "a.sh").notes)
    assert "EXTRA" in notes
    assert "placeholder" in notes


def test_what_cannot_be_read_is_said_and_its_variables_are_undecided() -> None:
    read = parse_script("T=1\nif [ x ]; then T=2\nrun $T", "a.sh")
    assert any("not read" in note for note in read.notes)


@pytest.mark.parametrize("text", ["run " + "x" * 600_000, "run \0"])
def test_too_long_and_binary_texts_are_refused(text: str) -> None:
    with pytest.raises(InputError, match=r"null characters|more than"):
        parse_script(text, "a.sh")


def test_a_thousand_flags_are_read() -> None:
    read = parse_script("run \\\n" + "".join(f"  --flag-{n} {n} \\\n" for n in range(1000)), "a.sh")
    assert len(_words(read)) == 2001


def test_commands_share_the_words_of_exported_variables() -> None:
    first, same, other = parse_script("export A=1 B=2\nrun\nrun\nB=3\nrun", "a.sh").commands
    assert first.exported is same.exported
    assert other.exported["A"] is first.exported["A"]
    assert [each.exported["B"].text for each in (first, same, other)] == ["2", "2", "3"]


def test_a_comment_in_backticks_is_no_word() -> None:
    read = parse_script("run --tp 2 `# why` \\\n  `# and this` \\\n --pp 4 \\\n", "a.sh")
    assert [word.text for word in _words(read)] == ["run", "--tp", "2", "--pp", "4"]
    assert not read.needs


def test_yaml_and_toml_need_no_parser_of_shell_scripts() -> None:
    code = """
import sys
sys.modules["tree_sitter"] = None
from shardplan.launch.read import parse_document, parse_script
assert parse_document("a: 1", "yaml", "x").tree == {"a": 1}
try:
    parse_script("x", "x")
except ValueError as error:
    print(error.hint)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "pip install" in done.stdout
