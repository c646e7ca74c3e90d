"""A model whose last layer is split by class over several processes, its ranks, and answers as one."""
