"""Bash without running it: which commands a script would run, and with which words.

The grammar is that of tree-sitter-bash (MIT). The rules of expansion are those of the Bash Reference Manual, 3.5.
"""
