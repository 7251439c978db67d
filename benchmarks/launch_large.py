"""Time and memory of reading files of 10 MB, harmless and hostile ones, each in its own process.

    python benchmarks/launch_large.py [READER ...]

Prints processor time and the peak memory of the whole process, and whether the file is read or refused.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from typing import Final

from shardplan.base.errors import InputError, shortened
from shardplan.launch.read import parse_document, parse_script

LENGTH: Final = 10_000_000
SHAPES: Final[Mapping[str, Callable[[], str]]] = {
    "comments": lambda: "# words of a comment of forty characters\n" * (LENGTH // 41),
    "short comments": lambda: "#\n" * (LENGTH // 2),
    "empty lines": lambda: "\n" * LENGTH,
    "blanks": lambda: "[a]\na" + " " * LENGTH + "b = 1\n",
    "one string": lambda: 'a = "' + "y" * LENGTH + '"\n',
    "many strings": lambda: 'a = ["' + '", "' * (LENGTH // 4) + '"]\n',
    "values": lambda: "a = [" + "1," * (LENGTH // 2) + "1]\n",
    "keys": lambda: "[a]\n" + "".join(f"k{number} = 1\n" for number in range(LENGTH // 13)),
    "dotted keys": lambda: "a." * (LENGTH // 2) + "b = 1\n",
    "brackets": lambda: "a = " + "[" * LENGTH + "\n",
    "mappings": lambda: '{"a":' * (LENGTH // 5) + "\n",
    "quotes": lambda: '"' * LENGTH + "\n",
    "open strings": lambda: "'\"\n" * (LENGTH // 3),
    "escapes": lambda: 'a = """' + '\\"""' * (LENGTH // 4) + "\n",
    "calls": lambda: "f()\n" * (LENGTH // 4),
    "calls that fit": lambda: "f()\n" * 37_000,
    "substitutions": lambda: "run " + "$(" * (LENGTH // 2) + "\n",
    "here-document": lambda: "cat <<EOF\n" + "x\n" * (LENGTH // 2) + "EOF\n",
    "options": lambda: "run " + "--a 1 " * (LENGTH // 6) + "\n",
}
READERS: Final[Mapping[str, Callable[[str], object]]] = {
    "bash": lambda text: parse_script(text, "large.sh"),
    "yaml": lambda text: parse_document(text, "yaml", "large.yaml"),
    "json": lambda text: parse_document(text, "json", "large.json"),
    "toml": lambda text: parse_document(text, "toml", "large.toml"),
    "ini": lambda text: parse_document(text, "ini", "large.ini"),
    "python": lambda text: parse_document(text, "python", "large.py"),
}


def measure(reader: str, shape: str) -> None:
    """Reads one text and prints its line."""
    text = SHAPES[shape]()
    start = time.process_time()
    try:
        READERS[reader](text)
        outcome = "read"
    except InputError as error:
        outcome = f"refused: {shortened(error.message, 60)}"
    seconds = time.process_time() - start
    megabytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6
    print(f"{reader:8}{shape:16}{len(text) / 1e6:6.1f} MB {seconds:6.2f} s {megabytes:5.0f} MB  {outcome}", flush=True)


def main() -> None:
    """Measures every shape with every reader that is named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("readers", nargs="*", metavar="READER", help=f"of {', '.join(READERS)}; all otherwise")
    parser.add_argument("--shape", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.shape:
        measure(arguments.readers[0], arguments.shape)
        return
    for reader in arguments.readers or READERS:
        for shape in SHAPES:
            subprocess.run([sys.executable, __file__, reader, "--shape", shape], check=True)  # noqa: S603  # itself


if __name__ == "__main__":
    main()
