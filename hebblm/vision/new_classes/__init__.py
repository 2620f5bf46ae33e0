"""New classes: pre-train on some, learn the others at once or as they come, and see who learns fastest."""
