from server.jetstream._consumer import ConsumerCore

class Flow:
    core: ConsumerCore
    def __init__(self, core: ConsumerCore) -> None: ...
