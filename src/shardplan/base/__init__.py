"""What every package uses: errors, units, fields, records, files and arrays. It imports no other package."""
