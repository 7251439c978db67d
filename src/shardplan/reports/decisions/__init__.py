"""Answers of the commands that decide, as plain records."""
