# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Walks JSON values and finds the first mistake, at the place where the reference's scanner sees it.

Contract: for texts that the decoder refused; a megabyte costs milliseconds, whatever is in it. No
recursion: what is open is a stack of brackets. Mistakes are told by `goscan`.
"""
from server.jetstream.goscan import END, MAX_DEPTH, JsonError, bad_escape, wrong

cdef enum:
    DEPTH_MAX = 10_000

assert DEPTH_MAX == MAX_DEPTH

cdef dict LITERALS = {c"t": b"true", c"f": b"false", c"n": b"null"}


cdef inline bint is_digit(unsigned char byte) noexcept:
    return c"0" <= byte <= c"9"


cdef inline bint is_hex(unsigned char byte) noexcept:
    return is_digit(byte) or c"a" <= byte <= c"f" or c"A" <= byte <= c"F"


cdef class Scanner:
    cdef bytes data
    cdef const unsigned char* text
    cdef Py_ssize_t size
    cdef Py_ssize_t at
    cdef int depth
    cdef unsigned char[DEPTH_MAX + 1] open

    def __init__(self, bytes data not None):
        self.data = data
        self.text = data
        self.size = len(data)

    cdef inline int byte(self) noexcept:
        """The next one; 0 at the end, which no place allows either."""
        return self.text[self.at] if self.at < self.size else 0

    cdef inline void skip(self) noexcept:
        while self.at < self.size and self.text[self.at] in (c" ", c"\t", c"\r", c"\n"):
            self.at += 1

    cdef int refuse(self, str context) except -1:
        raise wrong(self.data, self.at, context)

    def value(self, Py_ssize_t at):
        self.at = at
        self.depth = 0
        while True:
            if not self.begin() and not self.close():
                return self.at

    cdef int begin(self) except -1:
        """Past a scalar or an empty bracket; 1: a bracket was opened, go on inside."""
        cdef int byte
        self.skip()
        byte = self.byte()
        if byte == c"{" or byte == c"[":
            return self.enter(byte)
        if byte == c'"':
            self.string()
        elif byte == c"t" or byte == c"f" or byte == c"n":
            self.literal(LITERALS[byte])
        elif byte == c"-" or is_digit(byte):
            self.number()
        else:
            self.refuse("looking for beginning of value")
        return 0

    cdef int enter(self, unsigned char bracket) except -1:
        if self.depth == DEPTH_MAX:
            raise JsonError(f"exceeded max depth at offset {self.at + 1}")
        self.open[self.depth] = bracket
        self.depth += 1
        self.at += 1
        self.skip()
        if self.byte() == (c"}" if bracket == c"{" else c"]"):
            self.at += 1
            self.depth -= 1
            return 0
        if bracket == c"{":
            self.key()
        return 1

    cdef int key(self) except -1:
        """Past a key and its colon."""
        self.skip()
        if self.byte() != c'"':
            self.refuse("looking for beginning of object key string")
        self.string()
        self.skip()
        if self.byte() != c":":
            self.refuse("after object key")
        self.at += 1
        return 0

    cdef int close(self) except -1:
        """After a value: past what ends here; 1: another value is to come."""
        cdef bint inside_object
        cdef int byte
        while self.depth:
            self.skip()
            byte = self.byte()
            inside_object = self.open[self.depth - 1] == c"{"
            if byte == c",":
                self.at += 1
                if inside_object:
                    self.key()
                return 1
            if byte != (c"}" if inside_object else c"]"):
                self.refuse("after object key:value pair" if inside_object else "after array element")
            self.depth -= 1
            self.at += 1
        return 0

    cdef int string(self) except -1:
        cdef int byte
        self.at += 1
        while True:
            while self.at < self.size and self.text[self.at] >= 0x20 and (
                self.text[self.at] != c'"' and self.text[self.at] != c"\\"
            ):
                self.at += 1
            byte = self.byte()
            if byte == c'"':
                self.at += 1
                return 0
            if byte != c"\\":
                self.refuse("in string")
            self.escape()

    cdef int escape(self) except -1:
        cdef Py_ssize_t digits = 0
        cdef int mark = self.text[self.at + 1] if self.at + 1 < self.size else 0
        if mark == c"u":
            while digits < 4 and self.at + 2 + digits < self.size and is_hex(
                self.text[self.at + 2 + digits]
            ):
                digits += 1
            if digits < 4:
                raise bad_escape(self.data, self.at, 6)
            self.at += 6
        elif mark in (c'"', c"\\", c"/", c"b", c"f", c"n", c"r", c"t"):
            self.at += 2
        else:
            raise bad_escape(self.data, self.at, 2)
        return 0

    cdef int literal(self, bytes word) except -1:
        cdef Py_ssize_t i
        cdef const unsigned char* wanted = word
        self.at += 1
        for i in range(1, len(word)):
            if self.byte() != wanted[i]:
                self.refuse(f"in literal {word.decode()} (expecting '{chr(wanted[i])}')")
            self.at += 1
        return 0

    cdef int number(self) except -1:
        if self.byte() == c"-":
            self.at += 1
        if self.byte() == c"0":
            self.at += 1
        else:
            self.digits()
        if self.byte() == c".":
            self.at += 1
            self.digits()
        if self.byte() == c"e" or self.byte() == c"E":
            self.at += 1
            if self.byte() == c"+" or self.byte() == c"-":
                self.at += 1
            self.digits()
        return 0

    cdef int digits(self) except -1:
        if not is_digit(self.byte()):
            self.refuse("in numeric literal")
        while is_digit(self.byte()):
            self.at += 1
        return 0


def skip_blanks(bytes data not None, Py_ssize_t at):
    cdef Scanner scanner = Scanner(data)
    scanner.at = at
    scanner.skip()
    return scanner.at


def scan(bytes data not None):
    cdef list pieces = []
    cdef Scanner scanner = Scanner(data)
    scanner.skip()
    while scanner.at < scanner.size:
        start = scanner.at
        pieces.append((start, scanner.value(start)))
        scanner.skip()
    return pieces
