CODECS: dict[str, int]

def compress(codec: int, data: memoryview) -> object: ...
def decompress_into(codec: int, data: object, out: object) -> int: ...

class FrameMemory: ...

class FrameCache:
    bytes: int
    bytes_max: int
    hits: int
    loads: int
