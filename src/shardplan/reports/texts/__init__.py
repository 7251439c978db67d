"""Answers as text, alike on the command line and on pages."""
