# cython: language_level=3
from libc.stdint cimport int64_t, uint64_t


cdef struct FileCalls:
    void* context
    int (*open)(void* context, const char* path, int flags) noexcept nogil
    int (*close)(void* context, int fd) noexcept nogil
    int (*write)(void* context, int fd, const char* data, size_t size, uint64_t at) noexcept nogil
    int (*sync)(void* context, int fd) noexcept nogil
    # A hint: a sync will be asked for later. To the end of the file when `size` is 0.
    int (*start_writing)(void* context, int fd, uint64_t at, uint64_t size) noexcept nogil
    int (*allocate)(void* context, int fd, uint64_t size) noexcept nogil
    int (*truncate)(void* context, int fd, uint64_t size) noexcept nogil
    int (*rename)(void* context, const char* source, const char* target) noexcept nogil
    # `source` gets the name `target`, and what had that name the other's: it is still there to be written anew.
    # Where there is no such file, or the file system cannot: as rename.
    int (*exchange)(void* context, const char* source, const char* target) noexcept nogil
    int (*unlink)(void* context, const char* path) noexcept nogil
    int (*mkdir)(void* context, const char* path) noexcept nogil
    int (*rmdir)(void* context, const char* path) noexcept nogil
    int (*sync_directory)(void* context, const char* path) noexcept nogil
    int (*sync_all)(void* context, const char* path) noexcept nogil     # of the file system that `path` is on


cdef class Files:
    cdef FileCalls calls


cdef class FileMap:
    cdef char* data
    cdef readonly size_t size
    cdef int place


# A map that a job makes and ends.
cdef struct ReadMap:
    const char* data
    size_t size
    int place


cdef enum:
    TRIES_MAX = 1000


cdef FileMap map_file(str path)
cdef bint is_shortage(int result) noexcept nogil
cdef int open_patiently(const FileCalls* calls, const char* path, int flags) noexcept nogil
cdef int map_patiently(int fd, size_t size, ReadMap* out) noexcept nogil
cdef int map_whole(int fd, ReadMap* out) noexcept nogil
cdef void unmap(ReadMap* map) noexcept nogil

