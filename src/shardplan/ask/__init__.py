"""The one way to ask: the fields of a question, declared once, and the question made from them for every caller."""
