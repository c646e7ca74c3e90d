"""Training scripts of many processes, read whole: the wrapper of the model, all its uses, the launch, and the edits of all."""
