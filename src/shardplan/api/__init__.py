"""What Python users call: questions by name, answers that show, save and load themselves."""
