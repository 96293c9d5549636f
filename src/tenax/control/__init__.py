"""The coordinator: decides what a run does next; no I/O, no clock, no Spark."""
