"""What operators see: monitoring, metrics, logs, signals."""
