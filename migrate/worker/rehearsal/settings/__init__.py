"""What a script is told beside its arguments: the variables of its environment."""
