"""The part of a program on which something depends, as a program of its own."""
