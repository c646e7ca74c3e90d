"""How many machines: stages measured here, a simulation that repeats what was measured, and the arithmetic of many."""
