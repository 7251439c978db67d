"""The words of commands are those that bash itself passes, for scripts of our own."""

# ruff: noqa: E501 - scripts stand as they are written

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from tests.launch.read.truth import BASH, words_of_bash

from shardplan.launch.read import parse_script

pytestmark = pytest.mark.skipif(BASH is None, reason="bash is the truth here")

SCRIPTS = {
    "quotes": r"""run a 'b c' "d e" f\ g "h\"i" "j\\k" 'l"m' $'n\to' "p'q" '' "" r""s""",
    "variables": r"""A=1; B="x y"; C=$B; run $A "$B" $B $C${A}z "${C}w" '$A' \$A "\$A" $UNSET_ "" """,
    "splitting": r"""O="--x 1  --y 2"; O="$O --z"; run $O "$O" a$O"b" $O$O""",
    "continuations": 'O="--x 1 \\\n   --y 2 \\\n --z"\nrun $O \\\n  --w \\\n  --v\n',
    "several lines": 'O="\n  --x 1\n  --y 2\n"\nrun $O\n',
    "defaults": r"""A=; run "${A:-d}" "${A-d}" ${U:-d e} "${U:-d e}" ${A:+x} ${A+x} "${U:-"q r"}" ${U:-'q r'} ${U:=7} $U""",
    "trimming": r"""V=a/b/c.tar.gz; run ${V%.*} ${V%%.*} ${V#*/} ${V##*/} ${V/b/X} ${V//./_} ${V/#a/Y} ${V/%gz/Z}""",
    "case of letters": r"""V=Llama-70B; run ${V,,} ${V^^} ${V,} ${V^} ${#V} ${V:2} ${V:2:3} ${V: -3} ${V:1:-2}""",
    "comments as substitutions": 'O="--c `# in quotes` 3"\nrun --a `# one` 1 \\\n  `# two; three` \\\n  --b $(\n# two\n) $O\n',
    "arrays": r"""A=(a "b c" d); A+=(e); A[1]=z; run "${A[@]}" ${A[@]} "${A[*]}" ${#A[@]} "${A[1]}" $A "${A[@]:1:2}" ${A[-1]}""",
    "arrays with comments": 'A=(\n --a 1 # one\n # --b 2\n --c "3 4"\n)\nrun "${A[@]}" ${A[@]}',
    "empty arrays": r"""A=(); run "${A[@]}" x"${A[@]}"y "${A[*]}" ${A[@]} z""",
    "element by element": r"""A=(1 2); run "x${A[@]}y" "${A[@]/#/p}" "${A[@]%2}" """,
    "tables": r"""declare -A T=([a]=1 [b]="2 3"); T[c]=4; K=c; run "${T[a]}" "${T[b]}" ${T[$K]} ${#T[@]}""",
    "sums": r"""N=3; run $((N*2+1)) $((2**10)) $(( (N+1)/2 )) $((N%2)) $((-7/2)) $((-7%3)) $((N>2?10:20)) $((1<<4|1)) $((~N)) $((!N))""",
    "sums that assign": r"""((N=4, M=N*2)); ((N++)); ((M+=N)); let K=M-1; run $N $M $K $((N++)) $N $((--N)) $((010)) $((0x1f)) $((2#101))""",
    "skipped operands": r"""N=0; run $((N && (N=5))) $N $((1 || (N=6))) $N $((0 && 1/0)) $((N==0 ? 3 : 1/0))""",
    "conditions": r"""A=x; if [ "$A" = x ]; then run 1; else run 2; fi; if [[ $A == y* ]]; then run 3; elif [ -n "$A" ]; then run 4; fi""",
    "more conditions": r"""N=5
for t in -eq -ne -lt -le -gt -ge; do test $N $t 5 && run "$t"; done
[ -z "" ] && run z; [ "a b" = "a b" -a 1 = 1 ] && run a; [ 1 = 2 -o 1 = 1 ] && run o; [ ! -z x ] && run n; ! false && run f
[[ abc == a?c && ( x == y || 1 -lt 2 ) ]] && run d; [[ "a*" == "a*" ]] && run q; [[ ab == "a*" ]] || run r; [[ a < b ]] && run s
[[ 12 =~ ^[0-9]+$ ]] && run t; [ 1 ] && run u; [ "" ] || run v; (( 3 > 2 )) && run w; [[ ! -n "" ]] && run x; test 1 -lt 2 && run y""",
    "case": r"""for M in 7b "13 b" 70B x; do case "$M" in 7b|8b) run a;; "13 b") run b;; [0-9]*[Bb]) run c ;; *) run d;; esac; done""",
    "functions": r"""f() { local A=$1; B=$2; shift; run "$A" "$#" "$@"; return; run no; }; A=0; f 1 "2 3" 4; run $A "$B"; function g { echo "<$1>"; }; run "$(g a)" """,
    "loops": r"""for i in 1 2 {3..5} a{x,y}; do [ $i = 4 ] && continue; [ $i = ax ] && break; run $i; done; for ((i=0;i<3;i++)); do run c$i; done
N=3; while [ $N -gt 0 ]; do run $N; N=$((N-1)); done; until (( N >= 2 )); do ((N++)); run u$N; done; for a in "x y" z; do for b in 1 2; do run $a$b; done; done""",
    "arguments": r"""set -- a "b c" d; run $1 "$2" $# "$@" $* "$*" "${@:2}" "${@:2:1}"; shift 2; run "$@" $#; set --; run "$@" $# x""",
    "options": r"""set -- --tp 4 --name "a b" --flag; while [[ $# -gt 0 ]]; do case $1 in --tp) TP=$2; shift 2;; --name) NAME="$2"; shift; shift;; *) REST+=("$1"); shift;; esac; done; run "$TP" "$NAME" "${REST[@]}" """,
    "the end": r"""run 1; if true; then run 2; exit 0; fi; run 3""",
    "an end in brackets": r"""(run 1; exit; run 2); X=1; (X=2; run $X); run $X""",
    "lists": r"""true && run 1 || run 2; false && run 3; false || run 4; A=1; [ $A = 1 ] && B=y || B=n; run $B; { run 5; run 6; }""",
    "prefixes": r"""A=1; B=; A=2 run $A; run $A; B=3 C=4 run "$B"; run "$B" """,
    "eval": r"""C="run --x '1 2' \$A"; A=9; eval $C; eval "$C"; eval run '"$A"' """,
    "indirect": r"""A=B; B="v w"; run "${!A}" ${!A}; L=(x y z); run "${!L[@]}" """,
    "here": 'A=5\nX=$(cat <<EOF\n{"a": $A, "b": "\\$A"}\nEOF\n)\nrun "$X"\nY=$(cat <<\'EOF\'\n$A\nEOF\n)\nrun "$Y"\n',
    "substitution": r"""run $(echo a "b  c") "$(echo a "b  c")" `echo x` "$(printf '%s\n' y)" "$(echo "$(echo "q r")")" """,
    "adding": r"""A=x; A+=y; A+=" z"; export A B=2; export C="$A $B"; readonly D=4; declare E=5; export G=x{1..3}; run "$G"; run "$A" $B "$C" $D $E""",
    "separators": r"""IFS=,; V=a,b,,c; run $V; A=(1 2 3); run "${A[*]}"; unset IFS; run $V; unset V; run "$V" x""",
    "braces": r"""run {a,b}{1,2} x{1..3}y {01..03} {5..1..2} "{a,b}" {a} a{b {,x} pre{p,"q r"}post""",
    "dollars": r"""A=1; run "$" $ "a$" "$A$" "cost: 5$" "$A-$A" "$A.b" "${A}b" $A/b '$' """,
    "comments": "A=1 # B=2\nrun $A#x # y\n# run no\nrun a#b '#c'\n",
    "marks": r"""run a=b --x=y "--z=$UNSET_" 1,2 [a]; run '([0]*3+[1]*58)' a:b @x %y ^z x~""",
    "redirections": "run a > out.txt --tp 8 2>&1\nrun b 2>/dev/null c\n",
    "here-strings": r"""X="a,b c,d,e"; IFS=, read -r A B <<< "$X"; run "$A" "$B"; read -r A B C <<< " x  y z  w "; run "$A" "$B" "$C"
IFS=, read A B <<< "1,2,"; run "$A" "$B"; IFS=, read A B <<< "1,2,3,"; run "$A" "$B"; IFS=x read -r P Q <<< 8x16; run $P $Q; read A <<< ""; run "$A"
IFS=',' read -ra L <<< "$X"; run "${#L[@]}" "${L[@]}"; IFS=: read -r -a L <<< "4:8"; run ${L[1]} ${L[0]}; read -r W _ <<< "64 rest"; run $W; run "$(cat <<< no)" ok""",
    "here-documents that are read": "T=8\nread -r -d '' O <<EOF\n  --tp $T\n  --name 'a b'\nEOF\nrun $O\nread -d '' -r Q <<'EOF' || true\n$T \\n\nEOF\nrun \"$Q\"\nIFS= read -r L <<EOF\n  x y \nEOF\nrun \"$L\"\nread -r A B <<EOF\n1 2 3\n4\nEOF\nrun $A \"$B\"\n",
    "lines": r"""mapfile -t L < <(printf '%s\n' "a b"); run "${L[@]}"; readarray -t M <<< "x y"; run "${#M[@]}" "${M[@]}"; mapfile N <<< z; run "${N[0]}"
while read -r A B; do run "$A" "$B"; done <<< "1 2 3"; while IFS=, read -r A B; do run "$A-$B"; done <<EOF
a,b
c,d,e
EOF
echo "p q" | while read -r A B; do run $B $A; done; while read -r L || [[ -n $L ]]; do run "$L"; done < <(echo one)""",
    "pipelines": r"""D=0,1,2,3; run $(echo $D | tr ',' '\n' | wc -l) "$(echo $D | cut -d, -f2)" $(echo $D | tr -d ,) $(echo "$D" | tr , ' ' | wc -w)
run $(echo "a-b-c" | cut -d '-' -f 2-) "$(echo "x y" | tr a-z A-Z)" "$(echo $D | tr ',' '\n' | head -n 1)" "$(echo $D | tr , '\n' | tail -1)"
if echo "llama 70B" | grep -q 70B; then run big; else run small; fi; echo gpt | grep -qi GPT && run yes; N=$(wc -l <<< "$D"); run $N""",
    "loops that wait": r"""N=0; until [ $N -ge 1 ]; do sleep 0; N=1; done; while true; do run a; break; sleep 1; done; while true; do M=4; sleep 0; [ $M = 4 ] && break; done; run $M
for i in 1 2; do run $i; sleep 0; done; until false; do run b; break; done""",
    "backslashes behind quotes": r"""N=1; export C="a "\$N" b"; run "$C"; D="a "\$N" b"; run "$D"; G="v "\$N run "a "\$N" b"; declare H="q"\"r; run "$H" """,
    "arrays by index": r"""A=([0]=x [1]="y z"); run "${A[@]}"; N=(4 8 16); I=1; run ${N[I]} ${N[$I+1]} ${N[$((I-1))]} ${#N[@]}; N[3]=32; run "${N[@]:2}"; declare -a E=(); E+=("q r"); run "${E[@]}" """,
}


@pytest.mark.parametrize("name", SCRIPTS)
def test_words_are_those_of_bash(name: str, tmp_path: Path) -> None:
    script = SCRIPTS[name]
    assert _words(script, env={"UNSET_": "", "U": ""}) == words_of_bash(script, tmp_path, env={"UNSET_": "", "U": ""})


def _words(script: str, **given: object) -> list[list[str | None]]:
    read = parse_script(script, "script.sh", **given)  # type: ignore[arg-type]
    return [[word.text for word in command.words] for command in read.commands if command.words[0].text == "run"]


NAMES = st.sampled_from(["A", "B", "C1", "_d"])
PLAIN = st.text("abXY12 ._-/=:,", min_size=0, max_size=6)
LITERALS = st.one_of(
    PLAIN.map(lambda text: f'"{text}"'),
    PLAIN.map(lambda text: f"'{text}'"),
    st.text("abXY12._-/=:,", min_size=1, max_size=5),
    st.sampled_from([r"\ ", r"a\"b", r"$'x\ty'", '""', "{a,b}", "x{1..3}", '"\\$A"', "a\\\n  b"]),
)


@st.composite
def expansions(draw: st.DrawFn) -> str:
    name, word = draw(NAMES), draw(st.text("ab12./*?-", max_size=4))
    form = draw(
        st.sampled_from(
            ["${0}", "${{{0}}}", "${{{0}:-{1}}}", "${{{0}-{1}}}", "${{{0}:+{1}}}", "${{{0}%{1}}}", "${{{0}##{1}}}", "${{#{0}}}",
             "${{{0},,}}", "${{{0}^}}", "${{{0}:1}}", "${{{0}:0:2}}", "${{{0}/a/{1}}}", "${{{0}//[0-9]/x}}", "$(( {0}_n * 2 + 1 ))",
             "${{L[@]}}", "${{L[1]}}", "${{#L[@]}}", "$@", "${{L[*]}}", "$#", "$1", "$(echo ${0} z)", "${{L[@]:1}}"]
        )
    )  # fmt: skip
    text = form.format(name, word.replace("}", ""))
    return f'"{text}"' if draw(st.booleans()) else text


WORDS = st.lists(st.one_of(LITERALS, expansions()), min_size=1, max_size=3).map("".join)
TESTS = st.one_of(
    st.builds('[ "${}" {} "{}" ]'.format, NAMES, st.sampled_from(["=", "!="]), PLAIN),
    st.builds("[[ ${} {} {}* ]]".format, NAMES, st.sampled_from(["==", "!="]), st.text("abX1", max_size=2)),
    st.builds("(( {}_n {} {} ))".format, NAMES, st.sampled_from(["<", ">", "==", "!="]), st.integers(0, 9)),
    st.builds('[ {} "${}" ]'.format, st.sampled_from(["-z", "-n"]), NAMES),
)


IFS = st.sampled_from(["", "IFS=, ", "IFS= ", "IFS=: ", "IFS=' ,' "])


@st.composite
def statements(draw: st.DrawFn, depth: int = 0) -> str:
    kinds = ["assign", "add", "number", "array", "append", "run", "run", "set", "export", "read", "list", "lines"]
    kind = draw(st.sampled_from(kinds if depth > 1 else [*kinds, "if", "case", "for", "function", "and"]))
    name, words = draw(NAMES), draw(st.lists(WORDS, max_size=3))
    inner = ("; ".join(draw(st.lists(statements(depth + 1), min_size=1, max_size=2)))) if depth < 2 else "run x"
    return {
        "assign": f"{name}={words[0] if words else ''}",
        "add": f"{name}+={words[0] if words else ''}",
        "number": f"(( {name}_n += {draw(st.integers(-3, 9))} ))",
        "array": f"L=({' '.join(words)})",
        "append": f"L+=({' '.join(words)})",
        "run": f"run {' '.join(words)}",
        "set": f"set -- {' '.join(words)}",
        "export": f"export {name}={words[0] if words else ''}",
        "read": f"{draw(IFS)}read -r {name} {draw(NAMES)} <<< {words[0] if words else 'x'}",
        "list": f"{draw(IFS)}read -ra L <<< {words[0] if words else 'x'}",
        "lines": f'while {draw(IFS)}read -r {name} _d; do run ${name} "$_d"; done <<< {words[0] if words else "x"}',
        "if": f"if {draw(TESTS)}; then {inner}; else {name}=e; run else; fi",
        "case": f"case ${name} in a*|'') {inner};; *[0-9]) run digit;; *) {name}=c; esac",
        "for": f"for {name} in {' '.join(words)}; do {inner}; done",
        "function": f"f() {{ local {name}=$1; {inner}; }}; f {' '.join(words)}",
        "and": f"{draw(TESTS)} && run yes || run no",
    }[kind]


@given(st.lists(statements(), min_size=1, max_size=8))
@settings(
    max_examples=25, deadline=None, phases=[Phase.generate], suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_words_of_small_scripts_are_those_of_bash(tmp_path: Path, lines: list[str]) -> None:
    start = "set -f\nA='a b'; B=; C1=x1; _d='*'; A_n=1; B_n=2; C1_n=3; _d_n=0; L=(p 'q r'); set -- 1 '2 3'\n"
    script = start + "\n".join(lines) + "\nrun end\n"
    read = parse_script(script, "script.sh")
    mine = [[word.text for word in command.words] for command in read.commands]
    if any("not read" in note for note in read.notes):
        return  # what the grammar does not cover is said
    assert [call for call in mine if call[0] == "run"] == words_of_bash(script, tmp_path)
