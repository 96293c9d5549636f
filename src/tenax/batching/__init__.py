"""Which rows of the sources a batch has: planned, logged and never changed; which partitions are idle."""
