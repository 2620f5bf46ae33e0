"""Convolutional networks for 32x32 pictures: features for the same memory and the same adapters as hidden states."""
