# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""The blocks of a directory that wait to be rewritten, one at a time.

Contract: called by the owner's thread; `homes` is who still exists. A sealed block waits first for a
checkpoint (`shop.waiting`), then for its turn (`shop.to_frame`); the pool has one (`shop.rewrite`).
"""
from storage._framing cimport FramingTable
from storage._rewrite cimport Rewrite


cdef int pump_rewrites(Workshop shop, dict homes, object begin, object pool) except -1:
    """Take what is finished and start the next with `begin(run)`; None: the directory is closing."""
    cdef FramingTable home
    cdef Rewrite rewrite
    if shop.old_maps:
        shop.old_maps = pool.discard(shop.old_maps) if pool is not None else []
    while begin is not None:
        rewrite = shop.rewrite
        if rewrite is not None:
            if not rewrite.done:
                return 0
            shop.rewrite = None
            home = rewrite.home
            if homes.get(home.group) is home:
                home.finish_rewrite(rewrite)
        if not shop.to_frame:
            return 0
        home, number = shop.to_frame.popleft()
        if homes.get(home.group) is home:
            shop.rewrite = home.start_rewrite(number)
        if shop.rewrite is not None:
            begin(shop.rewrite.run)
    return 0


cdef int ask_for_checkpoints(Workshop shop, dict homes) except -1:
    """For the homes whose sealed blocks may be rewritten once a checkpoint has them as sealed."""
    cdef FramingTable home
    for home in shop.waiting:
        if homes.get(home.group) is home:
            home.checkpoint_wanted = True
            home.touch()
    shop.waiting.clear()
    return 0
