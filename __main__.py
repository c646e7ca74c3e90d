"""`python -m headrace` is the `headrace` command."""

from .cli import main

main()
