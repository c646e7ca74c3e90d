"""Exports that are held against the package before they stand, and the table that compares all forms of a model."""
