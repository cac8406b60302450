"""The columns of a message as Arrow and Spark see them; batches made of a decoder's buffers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from pyspark_jetstream import _decode
from pyspark_jetstream._decode import Decoder
from pyspark_jetstream.errors import OptionError

TIMESTAMP = pa.timestamp("us", tz="UTC")
HEADER_MAP = pa.map_(pa.string(), pa.list_(pa.string()))
KAFKA_HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


@dataclass(frozen=True)
class Column:
    """`spark` is the type as DDL; `needs` what the decoder must give.

    `nullable` is what a schema says of it: Spark need not ask each value of a column that is never
    null.
    """

    name: str
    spark: str
    arrow: pa.DataType
    needs: int
    may_be_null: bool = False
    nullable: bool = True

    @property
    def ddl(self) -> str:
        return f"`{self.name}` {self.spark}{'' if self.may_be_null else ' NOT NULL'}"


NATIVE: Final = (
    Column("account", "string", pa.string(), 0),
    Column("stream", "string", pa.string(), 0),
    Column("subject", "string", pa.string(), _decode.SUBJECT),
    Column("seq", "bigint", pa.int64(), _decode.SEQ),
    Column("timestamp", "timestamp", TIMESTAMP, _decode.TIME),
    Column("ts_ns", "bigint", pa.int64(), _decode.TIME),
    Column("payload", "binary", pa.binary(), _decode.PAYLOAD),
)
HEADERS: Final = Column(
    "headers", "map<string,array<string>>", HEADER_MAP, _decode.HEADERS, may_be_null=True
)
DELETED: Final = Column("deleted", "boolean", pa.bool_(), _decode.DELETED)
DERIVED: Final = (
    HEADERS,
    Column("msg_id", "string", pa.string(), _decode.MSG_ID, may_be_null=True),
    Column("size", "int", pa.int32(), _decode.SIZE),
    DELETED,
)
KAFKA: Final = (
    Column("key", "binary", pa.binary(), _decode.SUBJECT),
    Column("value", "binary", pa.binary(), _decode.PAYLOAD),
    Column("topic", "string", pa.string(), 0),
    Column("partition", "int", pa.int32(), 0),
    Column("offset", "bigint", pa.int64(), _decode.SEQ),
    Column("timestamp", "timestamp", TIMESTAMP, _decode.TIME),
    Column("timestampType", "int", pa.int32(), 0),
)
KAFKA_HEADER_COLUMN: Final = Column(
    "headers",
    "array<struct<key:string,value:binary>>",
    KAFKA_HEADERS,
    _decode.HEADERS,
    may_be_null=True,
)
LOG_APPEND_TIME = 1


def choose(
    names: Sequence[str], *, kafka: bool, headers: bool, deleted: bool
) -> tuple[Column, ...]:
    """The columns of `names`; all that the other options ask for when there are none."""
    every: tuple[Column, ...] = (*NATIVE, *DERIVED)
    usual: tuple[Column, ...]
    if kafka:
        every = (*KAFKA, KAFKA_HEADER_COLUMN)
        usual = every if headers else KAFKA
    else:
        usual = (*NATIVE, *([HEADERS] if headers else ()), *([DELETED] if deleted else ()))
    if not names:
        return usual
    known = {column.name: column for column in every}
    for name in names:
        if name not in known:
            raise OptionError(f"there is no column {name!r}; there are {', '.join(known)}")
        if names.count(name) > 1:
            raise OptionError(f"column {name!r} is named twice")
    return tuple(known[name] for name in names)


def arrow_schema(columns: Sequence[Column]) -> pa.Schema:
    return pa.schema([pa.field(each.name, each.arrow, each.nullable) for each in columns])


def needs(columns: Sequence[Column]) -> int:
    found = 0
    for column in columns:
        found |= column.needs
    return found


class BatchMaker:
    """Makes the batches of one stream."""

    def __init__(self, columns: Sequence[Column], account: str, stream: str) -> None:
        self._columns = columns
        self._schema = arrow_schema(columns)
        self._account, self._stream = account.encode(), stream.encode()

    def next_batch(self, decoder: Decoder) -> pa.RecordBatch | None:
        found = decoder.next_batch()
        if found is None:
            return None
        arrays = [self._array(column, found) for column in self._columns]
        if not arrays:  # a count alone
            return pa.RecordBatch.from_struct_array(pa.array([{}] * found["rows"], pa.struct([])))
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _array(self, column: Column, found: dict[str, Any]) -> pa.Array:
        rows = found["rows"]
        match column.name:
            case "account":
                return text(rows, *_decode.repeat_text(self._account, rows))
            case "stream" | "topic":
                return text(rows, *_decode.repeat_text(self._stream, rows))
            case "partition":
                return fixed(column.arrow, rows, bytes(4 * rows))
            case "timestampType":
                return fixed(column.arrow, rows, LOG_APPEND_TIME.to_bytes(4, "little") * rows)
            case "timestamp":
                return fixed(column.arrow, rows, _decode.to_micros(found["ts_ns"]))
            case "headers":
                made = header_maps(rows, *found["headers"])
                return made if pa.types.is_map(column.arrow) else kafka_headers(made)
            case "msg_id":
                validity, offsets, content = found["msg_id"]
                return text(rows, offsets, content, validity)
            case "deleted":
                return fixed(column.arrow, rows, found["deleted"])
            case name:
                return MAKERS[name](column.arrow, rows, found)


def fixed(kind: pa.DataType, rows: int, content: bytes) -> pa.Array:
    return pa.Array.from_buffers(kind, rows, [None, pa.py_buffer(content)])


def variable(
    kind: pa.DataType, rows: int, offsets: bytes, content: bytes, validity: bytes | None = None
) -> pa.Array:
    nulls = pa.py_buffer(validity) if validity is not None else None
    return pa.Array.from_buffers(kind, rows, [nulls, pa.py_buffer(offsets), pa.py_buffer(content)])


def text(rows: int, offsets: bytes, content: bytes, validity: bytes | None = None) -> pa.Array:
    return variable(pa.string(), rows, offsets, content, validity)


Maker = Callable[[pa.DataType, int, dict[str, Any]], pa.Array]
MAKERS: Final[dict[str, Maker]] = {
    "subject": lambda kind, rows, found: variable(kind, rows, *found["subject"]),
    "key": lambda kind, rows, found: variable(kind, rows, *found["subject"]),
    "payload": lambda kind, rows, found: variable(kind, rows, *found["payload"]),
    "value": lambda kind, rows, found: variable(kind, rows, *found["payload"]),
    "seq": lambda kind, rows, found: fixed(kind, rows, found["seq"]),
    "offset": lambda kind, rows, found: fixed(kind, rows, found["seq"]),
    "ts_ns": lambda kind, rows, found: fixed(kind, rows, found["ts_ns"]),
    "size": lambda kind, rows, found: fixed(kind, rows, found["size"]),
}


def header_maps(
    rows: int,
    validity: bytes,
    maps: bytes,
    key_ends: bytes,
    keys: bytes,
    lists: bytes,
    value_ends: bytes,
    values: bytes,
    key_count: int,
    value_count: int,
) -> pa.Array:
    """map<string, array<string>>; null where a message has no headers."""
    strings = text(value_count, value_ends, values)
    items = pa.Array.from_buffers(
        HEADER_MAP.item_type, key_count, [None, pa.py_buffer(lists)], children=[strings]
    )
    entries = pa.StructArray.from_arrays(
        [text(key_count, key_ends, keys), items],
        fields=[HEADER_MAP.key_field, HEADER_MAP.item_field],
    )
    buffers = [pa.py_buffer(validity), pa.py_buffer(maps)]
    return pa.Array.from_buffers(HEADER_MAP, rows, buffers, children=[entries])


def kafka_headers(maps: pa.Array) -> pa.Array:
    """array<struct<key, value>>, a repeated key once for each value."""
    entries = maps.to_pylist()
    rows = [
        None
        if fields is None
        else [{"key": key, "value": value.encode()} for key, values in fields for value in values]
        for fields in entries
    ]
    return pa.array(rows, KAFKA_HEADERS)


__all__ = ["BatchMaker", "Column", "arrow_schema", "choose", "needs"]
