"""Answers of the commands that decide: each asks many questions."""
