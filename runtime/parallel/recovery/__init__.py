"""When a rank is lost: the others stop and name it, and a training goes on from what was saved."""
