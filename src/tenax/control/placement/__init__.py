"""Which node runs which task: at the start, after a loss, when nodes come, when load moves."""
