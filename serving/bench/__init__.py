"""The benchmark: a served model beside a plain PyTorch service, measured in turn by one load generator."""
