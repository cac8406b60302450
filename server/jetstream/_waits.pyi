from server.jetstream.consumer_config import ConsumerConfig

class Waits:
    """How long a consumer waits for an ack."""

    shortest_ns: int
    def __init__(self, config: ConsumerConfig) -> None: ...
