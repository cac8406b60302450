"""How many batches may be open, how large they may be, and how long they may be silent."""

from __future__ import annotations

from dataclasses import dataclass

from config.options import JetStreamOptions


@dataclass(frozen=True, slots=True)
class BatchLimits:
    atomic_per_stream_max: int = 50
    atomic_total_max: int = 1_000
    atomic_messages_max: int = 1_000
    fast_per_stream_max: int = 1_000
    fast_total_max: int = 50_000
    idle_ns: int = 10_000_000_000
    staged_bytes_max: int = 256 * 1024 * 1024

    @classmethod
    def of(cls, options: JetStreamOptions) -> BatchLimits:
        """The defaults, and in place of each what the configuration says."""
        usual = cls()
        per_stream = options.max_batch_inflight_per_stream
        total = options.max_batch_inflight_total
        return cls(
            atomic_per_stream_max=per_stream or usual.atomic_per_stream_max,
            atomic_total_max=total or usual.atomic_total_max,
            atomic_messages_max=options.max_batch_messages or usual.atomic_messages_max,
            fast_per_stream_max=per_stream or usual.fast_per_stream_max,
            fast_total_max=total or usual.fast_total_max,
            idle_ns=options.max_batch_timeout_ns or usual.idle_ns,
        )


@dataclass(slots=True)
class BatchCounts:
    """Open batches of the whole server."""

    atomic: int = 0
    fast: int = 0
    staged_bytes: int = 0
