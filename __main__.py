"""`python -m penstock` is the `penstock` command."""

from .cli import main

main()
