"""Graph mode: capture, passes, backends, plan, artifact."""
