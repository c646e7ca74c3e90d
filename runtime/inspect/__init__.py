"""What a graph, a plan and a machine are, for people."""
