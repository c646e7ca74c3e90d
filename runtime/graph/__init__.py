"""Graph mode as users see it."""
