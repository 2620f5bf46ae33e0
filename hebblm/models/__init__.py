"""Base models: models that give hidden states and have a softmax head."""
