"""A benchmark's figures as values, tables, plots and pages."""
