"""Decisions of the page: each is a function of the question and of the fields of its form."""
