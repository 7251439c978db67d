"""Answers in other forms: a line, rows of a table, HTML, options of a framework."""
