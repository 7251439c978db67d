"""The version of the package, which ``pyproject.toml`` repeats."""

VERSION = "0.1.0"
