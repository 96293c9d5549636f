"""Pure optimisation: which tasks retain outputs, which run twice, which come back first."""
