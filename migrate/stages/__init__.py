"""The stages of one migration, in order, and what they share."""
