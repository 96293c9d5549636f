"""What lost nodes leave behind, and the way back."""
