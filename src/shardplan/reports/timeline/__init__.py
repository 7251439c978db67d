"""A simulated step as files: a trace, a page and a picture."""
