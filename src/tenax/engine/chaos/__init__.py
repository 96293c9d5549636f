"""Real faults, scheduled or random, and the two judges of what a run leaves behind."""
