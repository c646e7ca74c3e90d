"""What scripts say of themselves: printed, or written into tables and texts."""
