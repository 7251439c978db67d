"""Files and launch lines of torchtitan."""
