"""Which placement of a model on a mesh is fastest, and fits: predicted from measured rates of compute and of links."""
