"""What brings a program to a target: a list of passes for each, by the runner of `passes`. They round; a plan judges them."""
