"""The user's code in the sandbox: recorded, traced, compared."""
