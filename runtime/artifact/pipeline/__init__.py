"""A deep model as a pipeline: consecutive stages in processes of their own, which compute different batches at a time."""
