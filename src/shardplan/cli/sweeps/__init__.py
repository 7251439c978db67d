"""Commands that ask many questions, and draw their answers."""
