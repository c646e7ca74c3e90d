"""The report and its forms."""
