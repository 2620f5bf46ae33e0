"""What readers make of alternatives, and of drafts."""
