from libc.stdint cimport int32_t, uint32_t
from libc.string cimport memcpy


cdef extern from *:
    """
    #include <stdint.h>
    #include <string.h>
    /* Copies n bytes by overlapping words: the lengths here are short and vary, and then a call
       costs more than the copy. Nothing outside [0, n) is touched. */
    typedef struct { uint64_t low, high; } martlet_pair;
    static inline void martlet_copy_short(char *to, const char *from, size_t n) {
        if (n > 32) { memcpy(to, from, n); return; }
        if (n >= 16) {
            martlet_pair a, b; memcpy(&a, from, 16); memcpy(&b, from + n - 16, 16);
            memcpy(to, &a, 16); memcpy(to + n - 16, &b, 16); return;
        }
        if (n >= 8) {
            uint64_t a, b; memcpy(&a, from, 8); memcpy(&b, from + n - 8, 8);
            memcpy(to, &a, 8); memcpy(to + n - 8, &b, 8); return;
        }
        if (n >= 4) {
            uint32_t a, b; memcpy(&a, from, 4); memcpy(&b, from + n - 4, 4);
            memcpy(to, &a, 4); memcpy(to + n - 4, &b, 4); return;
        }
        if (n) { to[0] = from[0]; to[n - 1] = from[n - 1]; if (n == 3) to[1] = from[1]; }
    }
    """
    void copy_short "martlet_copy_short"(char* to, const char* source, size_t n) noexcept nogil


cdef enum:
    DECIMAL_MAX = 10            # digits of a 32 bit number
    MSG_LINE_FIXED = 40         # upper bound of a MSG or HMSG line without its three texts


# What stands behind the sid in a MSG line is the same for every subscriber of a message.
cdef size_t put_decimal(char* out, uint32_t value) noexcept nogil
