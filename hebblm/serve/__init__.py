"""A server: the adapted model where people type, over OpenAI's interface and its own."""
