"""The JSON API: bodies have the fields of the Python API, answers are the records of ``--json``."""
