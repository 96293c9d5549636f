"""What a user's program says, before anything runs: operators, sources, sinks, and what is known of their code."""
