"""What a result holds: its schema and files, methods, parts of a text, losses, gains."""
