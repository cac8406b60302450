# cython: language_level=3
from storage._expiry cimport ExpiryWheel
from storage._filter cimport SubjectFilter
from storage._index cimport SubjectIndex
from storage._spans cimport SpanIndex
from storage._store cimport StoreEvents


cdef class IndexProbe:
    cdef SubjectIndex index


cdef class WheelProbe:
    cdef ExpiryWheel wheel
    cdef SpanIndex spans


cdef class EventsProbe(StoreEvents):
    cdef readonly list seen
