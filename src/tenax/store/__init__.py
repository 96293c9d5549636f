"""What survives a driver: logs, checkpoints, epochs, in a folder."""
