"""What requests mean, whatever they came over."""
