"""What plans are made of, priced once and looked up piece by piece."""
