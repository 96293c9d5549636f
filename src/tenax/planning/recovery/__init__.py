"""Which failed tasks come back first, so that the most important outputs return soonest (paper 4)."""
