"""Files as bytes: where they are, their lines, and temporary files that carry checksums."""
