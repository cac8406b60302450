# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""How a stream's directory comes and goes, behind the log that says so (FORMAT.md, 4: meta and gone).

Contract: jobs of the block thread, run when the batch that has the frame is durable. Neither syncs: the log is
kept until a checkpoint has. A recovery does the same again from the log.
"""
import os

from cpython.bytes cimport PyBytes_AS_STRING
from cpython.ref cimport Py_INCREF, PyObject
from libc.stddef cimport size_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, strcmp, strcpy, strdup, strlen
from libc.stdio cimport snprintf

from storage._block cimport BLOCK_SEALED, JOB_LEAVE, JOB_META, close_block_file, write_fresh
from storage._blocktable cimport new_job
from storage._disk cimport Job
from storage._fs cimport TRIES_MAX, FileCalls, is_shortage
from storage._sealed cimport EVERY_BLOCK, drop_sealed

cdef extern from "dirent.h" nogil:
    ctypedef struct DIR:
        pass
    struct dirent:
        char* d_name
    DIR* opendir(const char* path)
    dirent* readdir(DIR* folder)
    int closedir(DIR* folder)
cdef extern from "errno.h" nogil:
    int errno, EACCES, EBUSY, EEXIST, EISDIR, ENOENT, ENOMEM, ENOTEMPTY, EPERM

cdef enum:
    FILES_AT_ONCE = 64      # removed before others have their turn
    NAME_ROOM = 264


cdef int run_meta(Job* job, const FileCalls* calls) noexcept nogil:
    """Make the directory if it is not there, and write the meta file, beside an old one first."""
    cdef BlockJob* work = <BlockJob*>job
    cdef size_t room = strlen(work.directory) + NAME_ROOM
    cdef char* path
    cdef char* fresh
    cdef int result = calls.mkdir(calls.context, work.directory)
    cdef bint is_new = result == 0
    if result < 0 and result != -EEXIST:
        return result
    path = <char*>malloc(room)
    fresh = <char*>malloc(room)
    result = -ENOMEM
    if path != NULL and fresh != NULL:
        snprintf(path, room, "%s/meta", work.directory)
        snprintf(fresh, room, "%s/meta.new", work.directory)
        result = write_fresh(calls, path if is_new else fresh, work.data, work.size, False)
        if result == 0 and not is_new:
            result = calls.rename(calls.context, fresh, path)
    free(path)
    free(fresh)
    return result


cdef DIR* open_folder_patiently(const char* directory) noexcept nogil:
    """NULL: `errno` says why."""
    cdef DIR* folder = opendir(directory)
    cdef int tries = 0
    while folder == NULL and tries < TRIES_MAX and is_shortage(-errno):
        folder = opendir(directory)
        tries += 1
    return folder


cdef int run_leave(Job* job, const FileCalls* calls) noexcept nogil:
    """Remove some files of the directory; with the last one it goes too. `count`: there are more."""
    cdef BlockJob* work = <BlockJob*>job
    cdef size_t room = strlen(work.directory) + NAME_ROOM
    cdef char* path
    cdef dirent* entry
    cdef DIR* folder
    cdef int removed = 0
    cdef int result = 0
    if work.file != NULL:
        close_block_file(work.file, calls)
    drop_sealed(work.files, work.group, EVERY_BLOCK, calls)
    folder = open_folder_patiently(work.directory)
    if folder == NULL:
        return 0 if errno == ENOENT else -errno
    path = <char*>malloc(room)
    if path == NULL:
        result = -ENOMEM
    entry = readdir(folder)
    while entry != NULL and removed < FILES_AT_ONCE and result == 0:
        if strcmp(entry.d_name, ".") != 0 and strcmp(entry.d_name, "..") != 0:
            snprintf(path, room, "%s/%s", work.directory, entry.d_name)
            result = calls.unlink(calls.context, path)
            if result == -EISDIR or result == -EPERM or result == -EACCES or result == -EBUSY:
                result = 0              # somebody else's: what is ours goes all the same
            else:
                removed += 1
        entry = readdir(folder)
    closedir(folder)
    free(path)
    work.files_left = entry != NULL
    if result == 0 and entry == NULL:
        result = leave_folder(work.directory, calls)
    return result


cdef int leave_folder(const char* directory, const FileCalls* calls) noexcept nogil:
    """Remove it, or, where something is left in it, set it aside: a name with a dot is no stream's."""
    cdef int result = calls.rmdir(calls.context, directory)
    cdef size_t length = strlen(directory)
    cdef char* aside
    if result != -ENOTEMPTY and result != -EEXIST and result != -EBUSY:
        return result
    aside = <char*>malloc(length + 2)
    if aside == NULL:
        return -ENOMEM
    memcpy(aside, directory, length + 1)
    while length and directory[length - 1] != b"/":
        length -= 1
    aside[length] = b"."
    strcpy(aside + length + 1, directory + length)
    calls.rename(calls.context, directory, aside)
    free(aside)
    return 0


cdef BlockJob* meta_job(BlockTable home, bytes content) except NULL:
    cdef BlockJob* job = new_job(JOB_META, home)
    job.job.run = run_meta
    job.directory = strdup(os.fsencode(home.path))
    Py_INCREF(content)
    job.keep = <PyObject*>content
    job.data = PyBytes_AS_STRING(content)
    job.size = len(content)
    return job


cdef BlockJob* leave_job(BlockTable home) except NULL:
    """The file that is still written to is closed by it; those being sealed are closed by their seals."""
    cdef BlockJob* job = new_job(JOB_LEAVE, home)
    job.job.run = run_leave
    job.directory = strdup(os.fsencode(home.path))
    if home.active != NULL and not home.active.flags & BLOCK_SEALED:
        job.file = home.active.file
    return job
