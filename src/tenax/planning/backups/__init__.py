"""Which tasks retain their outputs, so that recovery never takes longer than a bound (paper 3)."""
