"""The figures of the papers as named, reproducible runs."""
