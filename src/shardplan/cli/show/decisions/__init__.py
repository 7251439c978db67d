"""Answers of the commands that decide as text."""
