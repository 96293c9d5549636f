"""Real faults, scheduled or random, and the oracle that judges what a run leaves behind."""
