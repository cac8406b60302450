# cython: language_level=3
"""What consumers and their modules call by the same number."""


cdef enum AckPolicy:
    ACK_NONE
    ACK_ALL
    ACK_EXPLICIT
    ACK_FLOW_CONTROL

cdef enum Retention:
    KEEP_BY_LIMITS
    KEEP_BY_INTEREST
    KEEP_UNTIL_ACKED

# Why a message is not to be delivered to a consumer any more.
cdef enum Ending:
    ENDED_ACKED
    ENDED_TERMINATED
    ENDED_MAX_DELIVER
    ENDED_REMOVED           # the stream removed it

cdef enum Found:
    FOUND_NEW
    FOUND_AGAIN             # a redelivery
    FOUND_NOTHING
    FOUND_FULL              # max_ack_pending
