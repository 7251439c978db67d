"""What commands that show a step have in common."""
