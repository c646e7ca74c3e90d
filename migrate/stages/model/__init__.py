"""What is found out of one model beside its construction: how images become its input, and what its outputs are."""
