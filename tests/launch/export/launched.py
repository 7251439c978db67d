"""What a launch script would run: bash runs it with stand-ins for the programs that start processes."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

SHOW = '#!/bin/sh\nprintf \'%s\\0\' "$(basename "$0")" "$@" > "$SHOWN"\nenv -0 > "$SHOWN.env"\n'
STUBS = {
    "srun": '#!/bin/sh\nexec "$@"\n',
    "scontrol": "#!/bin/sh\necho node0\n",
    **dict.fromkeys(("torchrun", "accelerate", "nemo", "python3"), SHOW),
}


class Launched(NamedTuple):
    """A command line and its environment."""

    words: tuple[str, ...]
    environment: Mapping[str, str]

    def after(self, word: str) -> tuple[str, ...]:
        """Words behind the one that ends in ``word``."""
        at = next(at for at, each in enumerate(self.words) if each.endswith(word))
        return self.words[at + 1 :]


def launched(files: Mapping[str, str], folder: Path) -> Launched:
    """What the first of ``files``, which are written to ``folder``, runs."""
    bin_folder = folder / "bin"
    bin_folder.mkdir()
    for name, text in STUBS.items():
        (bin_folder / name).write_text(text)
        (bin_folder / name).chmod(0o755)
    for name, text in files.items():
        (folder / name).write_text(text)
    shown = folder / "shown"
    environment = {
        "PATH": f"{bin_folder}{os.pathsep}{os.environ['PATH']}",
        "SHOWN": str(shown),
        "SLURM_JOB_NODELIST": "node[0-7]",
        "SLURM_PROCID": "0",
    }
    subprocess.run(["/bin/bash", next(iter(files))], cwd=folder, env=environment, check=True)
    pairs = [each.partition("=") for each in (folder / "shown.env").read_text().split("\0") if each]
    return Launched(
        tuple(shown.read_text().split("\0")[:-1]), {name: value for name, _, value in pairs if name not in environment}
    )
