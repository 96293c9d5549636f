"""Which tasks run a second time, so that outputs stay as good as the budget allows (paper 1)."""
