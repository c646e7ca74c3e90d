"""A module becomes one program, or every obstacle is named."""
