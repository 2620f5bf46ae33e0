"""Base models: whatever gives hidden states and has a softmax head."""
