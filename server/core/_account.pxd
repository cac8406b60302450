from libc.stdint cimport int32_t, int64_t

from server.core._broker cimport Broker
from server.core._sink cimport Msg, Sink
from server.core._sublist cimport Sub, Sublist
from server.core._turn cimport Phase


cdef class Account:
    cdef Broker broker
    cdef readonly str name
    cdef readonly Sublist sublist
    cdef public int64_t max_payload
    cdef public int64_t max_subscriptions
    cdef public int64_t max_connections
    cdef public str issued_at
    cdef readonly bint traces_parents    # a sampled `traceparent` asks for a trace
    cdef readonly str trace_destination
    cdef readonly int trace_percent
    cdef public object mappings          # Mappings of what clients publish; None: there are none
    cdef public int64_t in_msgs, in_bytes, out_msgs, out_bytes
    cdef public int64_t slow_consumers
    cdef readonly int64_t connections, total_connections, subscriptions
    cdef set callbacks               # PySubs live until they are unsubscribed
    cdef object inbox                # deliveries to callbacks, until the end of the turn
    cdef Phase inbox_phase


cdef class PySub(Sink):
    cdef drop(self)
    cdef Account account
    cdef Sub* sub
    cdef object callback
    cdef bint with_client            # the callback gets the publishing client, not the pattern
    cdef public object on_traced     # what it adds to the trace of a message: (trace, subject)
    cdef readonly str subject
    cdef readonly str queue
