"""What the driver keeps: epochs, the batch log, checkpoints and events, safe against death at any moment."""
