"""Requests become batches: the queue, the policy, the latency table, what was counted."""
