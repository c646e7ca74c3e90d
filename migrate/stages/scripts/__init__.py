"""The scripts of a repository, run before and after: with which arguments, what they did, and whether they agree."""
