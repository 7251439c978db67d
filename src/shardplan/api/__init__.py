"""The Python API: questions by name, and answers that show, save and load themselves."""
