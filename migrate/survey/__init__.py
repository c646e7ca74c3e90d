"""What a repository holds: models, scripts, loops, transforms, checkpoints."""
