"""Faults on real processes, and the judges that look at what became of the results."""
