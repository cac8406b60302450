# cython: language_level=3
from storage._block cimport BlockJob
from storage._blocktable cimport BlockTable

cdef BlockJob* meta_job(BlockTable home, bytes content) except NULL
cdef BlockJob* leave_job(BlockTable home) except NULL
