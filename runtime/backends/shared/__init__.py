"""What several backends build their sessions from."""
