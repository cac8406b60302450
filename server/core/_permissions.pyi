class Permissions:
    """What a user may do, compiled. Immutable; one object serves all connections of a user.

    Entries are subjects with wildcards; subscribe entries may name a queue after a blank
    ("orders.> workers.*"). `None` for an allow list means everything, an empty one nothing.
    `responses_max` 0: replies are not allowed dynamically; -1: any number. `responses_expires_ns`
    0 or less: they do not expire.
    Raises ValueError for a malformed entry.
    """

    pub_allow: list[str] | None
    pub_deny: list[str]
    sub_allow: list[str] | None
    sub_deny: list[str]
    responses_max: int
    responses_expires_ns: int
    def __init__(
        self,
        pub_allow: list[str] | None = None,
        pub_deny: list[str] | None = None,
        sub_allow: list[str] | None = None,
        sub_deny: list[str] | None = None,
        responses_max: int = 0,
        responses_expires_ns: int = 0,
    ) -> None: ...
    def may_publish(self, subject: str) -> bool: ...
    def may_subscribe(self, subject: str, queue: str = "") -> bool: ...
