"""What is known of models that serve: what they compute with, how right they are, what they did."""
