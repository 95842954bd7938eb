"""Sources: files of responses, persons and keys, read piece by piece."""
