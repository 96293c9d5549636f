"""What a user writes: streams of rows, from sources through operators to outputs."""
