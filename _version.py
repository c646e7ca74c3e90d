"""The version, in a file that imports nothing: what a plan and a manifest were written by."""

__version__ = "0.1.0"
