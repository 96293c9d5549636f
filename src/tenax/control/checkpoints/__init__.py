"""When which tasks are stored, and from which batch unstored states are rebuilt."""
