"""Where results go: each final result is committed exactly once."""
