"""One door: the fields of a question, declared once, and the question that their values put, whoever brings them."""
