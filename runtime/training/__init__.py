"""The training graph: forward, loss, backward and update captured as one step."""
