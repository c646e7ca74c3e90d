"""What Python files say, read without running them: text, names, statements, options, calls."""
