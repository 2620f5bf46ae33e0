"""Image experiments: the same memory and adaptation for classifiers of pictures."""
