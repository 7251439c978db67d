"""What each training framework's names mean: commands and documents to a :class:`Reading`, one file per framework."""
