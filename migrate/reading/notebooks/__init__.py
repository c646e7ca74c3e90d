"""Jupyter notebooks: their cells as one source, and edits of that in the cells again."""
