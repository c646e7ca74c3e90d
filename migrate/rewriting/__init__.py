"""Rules, and the edits they make: repair first, then graph mode."""
