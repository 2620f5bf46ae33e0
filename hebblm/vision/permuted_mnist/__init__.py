"""Permuted MNIST: tasks learnt one after the other, and which method forgets least."""
