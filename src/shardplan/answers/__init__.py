"""Answers as documents: what each says, its tables and its figure, once for terminal, pages, notebooks and files."""
