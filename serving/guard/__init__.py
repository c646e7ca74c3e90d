"""Who may ask for what, and how much: tokens, host names, rates, bytes, TLS."""
