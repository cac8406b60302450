# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""The only system calls that change files. A table of C functions, so that a test can own the disk.

Every call answers 0 (or a descriptor) or a negative errno; none raises, none needs the GIL.
`Files` is the real thing. `FilesPort` passes each call to a Python method of the same name, which
is how the crash suite drops, garbles and refuses writes. Reading is by `map_file`, always real; what of a map
cannot be read is zeros (`_mapguard.h`).

Too few descriptors or too little memory says nothing about the disk: who is about to open or map a file waits
for them (`open_patiently`), up to ten seconds, instead of taking the store down.
"""
import errno as errno_names
import os

from cpython.buffer cimport PyBuffer_FillInfo
from libc.errno cimport EINTR, EINVAL, EMFILE, ENFILE, ENOENT, ENOMEM, ENOSYS, EOPNOTSUPP, errno
from libc.stdint cimport uint64_t
from posix.types cimport mode_t, off_t

cdef extern from "fcntl.h" nogil:
    int c_open "open"(const char* path, int flags, ...)
    int c_fallocate "fallocate"(int fd, int mode, off_t at, off_t size)
    int sync_file_range(int fd, off_t at, off_t size, unsigned int flags)
    int AT_FDCWD, O_RDONLY, O_CLOEXEC, O_DIRECTORY, SYNC_FILE_RANGE_WRITE
cdef extern from "unistd.h" nogil:
    int c_close "close"(int fd)
    ssize_t pwrite(int fd, const void* data, size_t size, off_t at)
    int fdatasync(int fd)
    int fsync(int fd)
    int syncfs(int fd)
    int c_ftruncate "ftruncate"(int fd, off_t size)
    int c_unlink "unlink"(const char* path)
    int c_rmdir "rmdir"(const char* path)
cdef extern from "stdio.h" nogil:
    int c_rename "rename"(const char* source, const char* target)
    int renameat2(int source_at, const char* source, int target_at, const char* target, unsigned int flags)
    unsigned int RENAME_EXCHANGE
cdef extern from "sys/stat.h" nogil:
    int c_mkdir "mkdir"(const char* path, mode_t mode)
cdef extern from "time.h" nogil:
    struct timespec:
        long tv_sec
        long tv_nsec
    int nanosleep(const timespec* wanted, timespec* left)
cdef extern from "_mapguard.h" nogil:
    void install_guard()
    int guard_map(const void* data, size_t size)
    void unguard_map(int place)
    unsigned int guarded_fault_count()
cdef extern from "unistd.h" nogil:
    long lseek(int fd, long offset, int whence)
    int SEEK_END
cdef extern from "sys/mman.h" nogil:
    void* mmap(void* at, size_t size, int protection, int flags, int fd, off_t offset)
    int munmap(void* at, size_t size)
    int PROT_READ, MAP_SHARED
    void* MAP_FAILED


cdef char[64 << 10] nothing

cdef enum:
    TRY_NS = 10000000

install_guard()


cdef bint is_shortage(int result) noexcept nogil:
    """Of descriptors or memory; waits before the caller tries again."""
    cdef timespec wanted
    if result != -EMFILE and result != -ENFILE and result != -ENOMEM:
        return False
    wanted.tv_sec, wanted.tv_nsec = 0, TRY_NS
    nanosleep(&wanted, NULL)
    return True


cdef int open_patiently(const FileCalls* calls, const char* path, int flags) noexcept nogil:
    cdef int fd = calls.open(calls.context, path, flags)
    cdef int tries = 0
    while fd < 0 and tries < TRIES_MAX and is_shortage(fd):
        fd = calls.open(calls.context, path, flags)
        tries += 1
    return fd


cdef int map_patiently(int fd, size_t size, ReadMap* out) noexcept nogil:
    """Map the first `size` bytes, which may be none."""
    cdef void* at = NULL
    cdef int tries = 0
    out.data, out.size, out.place = NULL, size, -1
    if size == 0:
        return 0
    at = mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0)
    while at == MAP_FAILED and tries < TRIES_MAX and is_shortage(-errno):
        at = mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0)
        tries += 1
    if at == MAP_FAILED:
        out.size = 0
        return -errno
    out.data = <const char*>at
    out.place = guard_map(at, size)
    return 0


cdef int map_whole(int fd, ReadMap* out) noexcept nogil:
    cdef long size = lseek(fd, 0, SEEK_END)
    return map_patiently(fd, <size_t>max(size, 0), out)


cdef void unmap(ReadMap* map) noexcept nogil:
    if map.data != NULL:
        unguard_map(map.place)
        munmap(<void*>map.data, map.size)
        map.data = NULL


def zeroed_pages() -> int:
    """How many pages of maps could not be read so far."""
    return guarded_fault_count()


cdef int directory_fd(const char* path) noexcept nogil:
    cdef int fd = c_open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC)
    cdef int tries = 0
    while fd < 0 and tries < TRIES_MAX and is_shortage(-errno):
        fd = c_open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC)
        tries += 1
    return fd if fd >= 0 else -errno


cdef int real_open(void* context, const char* path, int flags) noexcept nogil:
    cdef int fd = c_open(path, flags | O_CLOEXEC, 0o600)
    return fd if fd >= 0 else -errno


cdef int real_close(void* context, int fd) noexcept nogil:
    return 0 if c_close(fd) == 0 else -errno


cdef int real_write(void* context, int fd, const char* data, size_t size, uint64_t at) noexcept nogil:
    cdef ssize_t done
    while size:
        done = pwrite(fd, data, size, <off_t>at)
        if done < 0:
            if errno == EINTR:
                continue
            return -errno
        data += done
        at += <uint64_t>done
        size -= <size_t>done
    return 0


cdef int real_sync(void* context, int fd) noexcept nogil:
    return 0 if fdatasync(fd) == 0 else -errno


cdef int real_start_writing(void* context, int fd, uint64_t at, uint64_t size) noexcept nogil:
    sync_file_range(fd, <off_t>at, <off_t>size, SYNC_FILE_RANGE_WRITE)    # whether it worked the sync will say
    return 0


cdef int real_allocate(void* context, int fd, uint64_t size) noexcept nogil:
    while c_fallocate(fd, 0, 0, <off_t>size) != 0:
        if errno == EOPNOTSUPP:
            return fill_up(fd, size)
        if errno != EINTR:
            return -errno
    return 0


cdef int fill_up(int fd, uint64_t size) noexcept nogil:
    """On a file system that reserves nothing: zeros from the end of the file on."""
    cdef long end = lseek(fd, 0, SEEK_END)
    cdef int result = 0
    while result == 0 and 0 <= end < <long>size:
        result = real_write(NULL, fd, nothing, <size_t>min(<uint64_t>sizeof(nothing), size - <uint64_t>end), <uint64_t>end)
        end += sizeof(nothing)
    return result


cdef int real_truncate(void* context, int fd, uint64_t size) noexcept nogil:
    return 0 if c_ftruncate(fd, <off_t>size) == 0 else -errno


cdef int real_rename(void* context, const char* source, const char* target) noexcept nogil:
    return 0 if c_rename(source, target) == 0 else -errno


cdef int real_exchange(void* context, const char* source, const char* target) noexcept nogil:
    if renameat2(AT_FDCWD, source, AT_FDCWD, target, RENAME_EXCHANGE) == 0:
        return 0
    if errno == ENOENT or errno == EINVAL or errno == ENOSYS:
        return real_rename(context, source, target)
    return -errno


cdef int real_unlink(void* context, const char* path) noexcept nogil:
    return 0 if c_unlink(path) == 0 else -errno


cdef int real_mkdir(void* context, const char* path) noexcept nogil:
    return 0 if c_mkdir(path, 0o700) == 0 else -errno


cdef int real_rmdir(void* context, const char* path) noexcept nogil:
    return 0 if c_rmdir(path) == 0 else -errno


cdef int real_sync_directory(void* context, const char* path) noexcept nogil:
    cdef int result
    cdef int fd = directory_fd(path)
    if fd < 0:
        return fd
    result = 0 if fsync(fd) == 0 else -errno
    c_close(fd)
    return result


cdef int real_sync_all(void* context, const char* path) noexcept nogil:
    cdef int result
    cdef int fd = directory_fd(path)
    if fd < 0:
        return fd
    result = 0 if syncfs(fd) == 0 else -errno
    c_close(fd)
    return result


cdef class Files:
    """The real file system."""

    def __cinit__(self, *args, **kwargs):
        self.calls = FileCalls(
            context=<void*>self, open=real_open, close=real_close, write=real_write, sync=real_sync,
            start_writing=real_start_writing, allocate=real_allocate, truncate=real_truncate, rename=real_rename, exchange=real_exchange,
            unlink=real_unlink, mkdir=real_mkdir, rmdir=real_rmdir, sync_directory=real_sync_directory, sync_all=real_sync_all)


cdef int answer(object call, tuple arguments) noexcept:
    """Call a port's method; an OSError becomes its negative errno."""
    try:
        value = call(*arguments)
    except OSError as error:
        return -(error.errno or errno_names.EIO)
    except BaseException as error:
        import sys
        sys.unraisablehook(sys.UnraisableHookArgs(
            (type(error), error, error.__traceback__, "in a file port", call)))
        return -errno_names.EIO
    return 0 if value is None else <int>value


cdef int port_open(void* context, const char* path, int flags) noexcept with gil:
    return answer((<object>context).open, (os.fsdecode(path), flags))


cdef int port_close(void* context, int fd) noexcept with gil:
    return answer((<object>context).close, (fd,))


cdef int port_write(void* context, int fd, const char* data, size_t size, uint64_t at) noexcept with gil:
    return answer((<object>context).write, (fd, data[:size], at))


cdef int port_sync(void* context, int fd) noexcept with gil:
    return answer((<object>context).sync, (fd,))


cdef int port_start_writing(void* context, int fd, uint64_t at, uint64_t size) noexcept nogil:
    return 0


cdef int port_allocate(void* context, int fd, uint64_t size) noexcept with gil:
    return answer((<object>context).allocate, (fd, size))


cdef int port_truncate(void* context, int fd, uint64_t size) noexcept with gil:
    return answer((<object>context).truncate, (fd, size))


cdef int port_rename(void* context, const char* source, const char* target) noexcept with gil:
    return answer((<object>context).rename, (os.fsdecode(source), os.fsdecode(target)))


cdef int port_exchange(void* context, const char* source, const char* target) noexcept with gil:
    return answer((<object>context).exchange, (os.fsdecode(source), os.fsdecode(target)))


cdef int port_unlink(void* context, const char* path) noexcept with gil:
    return answer((<object>context).unlink, (os.fsdecode(path),))


cdef int port_mkdir(void* context, const char* path) noexcept with gil:
    return answer((<object>context).mkdir, (os.fsdecode(path),))


cdef int port_rmdir(void* context, const char* path) noexcept with gil:
    return answer((<object>context).rmdir, (os.fsdecode(path),))


cdef int port_sync_directory(void* context, const char* path) noexcept with gil:
    return answer((<object>context).sync_directory, (os.fsdecode(path),))


cdef int port_sync_all(void* context, const char* path) noexcept with gil:
    return answer((<object>context).sync_all, (os.fsdecode(path),))


cdef class FilesPort(Files):
    """Each call goes to the subclass's method of that name; an OSError it raises is the disk's answer."""

    def __cinit__(self, *args, **kwargs):
        self.calls = FileCalls(
            context=<void*>self, open=port_open, close=port_close, write=port_write, sync=port_sync,
            start_writing=port_start_writing, allocate=port_allocate, truncate=port_truncate, rename=port_rename, exchange=port_exchange,
            unlink=port_unlink, mkdir=port_mkdir, rmdir=port_rmdir, sync_directory=port_sync_directory, sync_all=port_sync_all)


cdef class FileMap:
    """A whole file, mapped for reading while this object lives."""

    def __dealloc__(self):
        if self.data != NULL:
            unguard_map(self.place)
            with nogil:         # the last map of a removed file: the kernel frees its blocks now
                munmap(self.data, self.size)

    def __getbuffer__(self, Py_buffer* buffer, int flags):
        PyBuffer_FillInfo(buffer, self, self.data, <Py_ssize_t>self.size, 1, flags)


cdef FileMap map_file(str path):
    """Map `path`; an empty file gives a map without data. Raises OSError."""
    cdef FileMap out = FileMap.__new__(FileMap)
    cdef void* at
    cdef int fd = os.open(path, O_RDONLY | O_CLOEXEC)
    try:
        out.size = os.fstat(fd).st_size
        if out.size:
            at = mmap(NULL, out.size, PROT_READ, MAP_SHARED, fd, 0)
            if at == MAP_FAILED:
                out.size = 0
                raise OSError(errno, os.strerror(errno), path)
            out.data = <char*>at
            out.place = guard_map(at, out.size)
    finally:
        os.close(fd)
    return out
