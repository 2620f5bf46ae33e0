"""Image experiments: the same memory and the same adaptation on classifiers that see pictures."""
