"""A finished model on disk: its plan, parity record, manifest and configuration. Torch-free."""
