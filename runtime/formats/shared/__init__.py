"""What formats share: the package that they start from, its portable graph as a torch module, what is said of it."""
