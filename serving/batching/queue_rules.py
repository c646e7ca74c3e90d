"""What a model's `dynamic_batching` says of its queue: priority levels, timeouts, sizes, preferred batches. Pure.

The meanings are those of Triton's docs/user_guide/batcher.md and of `ModelQueuePolicy` and `ModelDynamicBatching` in its
model_config.proto. A model whose config says nothing of these is queued as docs/batching.md describes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ...errors import ArtifactError
from ...runtime.artifact.model_config import ModelConfig
from .policy import Order, service_order


@dataclass(frozen=True, kw_only=True)
class QueuePolicy:
    """Of one priority level. `timeout` is how many seconds a request may wait in the queue (0: as long as its deadline allows);
    after that it is rejected or, if it `delays`, served behind those of its level that have time left. A request may ask for a
    shorter one where `override` says so. `size` is how many may wait (0: as many as the server lets wait)."""

    timeout: float = 0.0
    delays: bool = False
    override: bool = False
    size: int = 0


@dataclass(frozen=True, kw_only=True)
class QueueRules:
    """The rules of one model's queue. `levels` 0 are no priority levels: requests rank by the number they give.

    `default` is the policy of the levels that `policies` does not name; None says that the config has none.
    """

    levels: int = 0
    default_level: int = 0
    default: QueuePolicy | None = None
    policies: Mapping[int, QueuePolicy] = field(default_factory=dict)
    preferred: tuple[int, ...] = ()

    @classmethod
    def of(cls, config: ModelConfig) -> QueueRules:
        """What a config says. Raises ArtifactError for what Triton would refuse."""
        declared = config.message.get("dynamic_batching", {})
        levels, default_level = int(declared.get("priority_levels", 0)), int(declared.get("default_priority_level", 0))
        preferred = tuple(sorted({int(size) for size in declared.get("preferred_batch_size", ())}))
        by_level = {int(level): _policy(policy) for level, policy in declared.get("priority_queue_policy", {}).items()}
        wrong = ""
        if levels and not 1 <= default_level <= levels:
            wrong = f"default_priority_level must be from 1 to priority_levels ({levels}), got {default_level}"
        elif unknown := [level for level in by_level if not 1 <= level <= levels]:
            wrong = f"priority_queue_policy names level {unknown[0]}; priority_levels is {levels}"
        elif preferred and preferred[0] < 1:
            wrong = f"dynamic batching preferred size must be positive, got {preferred[0]}"
        elif preferred and preferred[-1] > config.max_batch_size:
            wrong = f"dynamic batching preferred size must be <= max batch size {config.max_batch_size}, got {preferred[-1]}"
        if wrong:
            raise ArtifactError(f"'{config.name}': dynamic_batching: {wrong}")
        given = declared.get("default_queue_policy")
        default = _policy(given or {}) if given is not None or by_level else None
        return cls(levels=levels, default_level=default_level, default=default, policies=by_level, preferred=preferred)

    def level(self, priority: int) -> int:
        """The level of a request that gives this priority (0: none). One beyond the levels has the default's, as in Triton."""
        if not self.levels:
            return priority
        return priority if 1 <= priority <= self.levels else self.default_level

    def policy(self, level: int) -> QueuePolicy | None:
        """The policy of a level, if the config has one."""
        return self.policies.get(level, self.default)

    def order(self, level: int, deadline: float, serial: int) -> Order:
        """The place in the queue: within levels, and under queue policies, in the order in which requests came."""
        return service_order(level, 0.0 if self.levels or self.default else deadline, serial)

    def times(self, requested: float | None, priority: int, default: float) -> tuple[float, float]:
        """The seconds until a request's deadline and those that it may wait in the queue (0: until the deadline).

        `requested` is what it asks for, and `default` the server's own deadline. Under a queue policy a request's own time is
        one of waiting, and only where the policy has a longer one and lets it be shortened.
        """
        policy = self.policy(self.level(priority))
        if policy is None:
            return (default if requested is None else requested), 0.0
        shorter = policy.override and requested is not None and 0 < requested < policy.timeout
        return default, requested if shorter and requested is not None else policy.timeout


def _policy(declared: Mapping[str, Any]) -> QueuePolicy:
    return QueuePolicy(
        timeout=int(declared.get("default_timeout_microseconds", 0)) / 1e6,
        delays=declared.get("timeout_action", "REJECT") == "DELAY",
        override=bool(declared.get("allow_timeout_override", False)),
        size=int(declared.get("max_queue_size", 0)),
    )
