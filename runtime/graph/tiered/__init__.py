"""Graphs that are never in the way: a module answers until one pays."""
