"""Files that answers are written to."""
