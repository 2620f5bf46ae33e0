"""The pictures: MNIST, CIFAR-100 and scikit-learn's digits, from files or from the hub."""
