#!/usr/bin/env python3
"""Writes the Parquet files of tests/unit/test_parquet.c with pyarrow (26.0 wrote those that are stored), each with its rows as
JSONL beside it; files of one set of rows share theirs: NAME.jsonl is the twin of NAME.parquet and of NAME-*.parquet.

    python3 tests/parquet/record.py tests/parquet
"""
import decimal
import datetime
import json
import sys

import pyarrow as pa
import pyarrow.parquet as pq

out = sys.argv[1]


def write(name, rows, schema, **how):
    how = {"compression": "none", "store_schema": False, **how}
    pq.write_table(pa.Table.from_pylist(rows, schema=schema), f"{out}/{name}.parquet", **how)


def twin(name, rows):
    with open(f"{out}/{name}.jsonl", "w", encoding="utf-8") as file:
        for row in rows:
            file.write(json.dumps(row, ensure_ascii=False) + "\n")


text, number = pa.string(), pa.int64()

# Conversations, as chat data sets have them; several pages and row groups, every compression, both versions of pages.
message = pa.struct([("role", text), ("content", text)])
chats = [
    {"id": i,
     "messages": [m for k in range(i % 4) for m in
                  ({"role": "user", "content": f'What is {i} and {k}?\n"quoted", a \\ and \t' + "x" * (i % 7)},
                   {"role": "assistant", "content": None if i == 9 else f"{i} is {i}; 日本語 {'é' * (i % 5)}"})]}
    for i in range(24)
]
schema = pa.schema([("id", number), ("messages", pa.list_(message))])
twin("messages", chats)
for codec in ("none", "snappy", "gzip", "zstd"):
    for version in ("1.0", "2.0"):
        write(f"messages-{codec}-{version[0]}", chats, schema, compression=codec, data_page_version=version, row_group_size=10,
              data_page_size=100, write_batch_size=3)
write("messages-plain", chats, schema, use_dictionary=False, data_page_size=100, write_batch_size=3)
write("messages-sums", chats, schema, write_page_checksum=True, compression="zstd")

# One column of text, with values that are null and empty.
texts = [{"text": t} for t in ("one", "", None, "two\x01\x1f", "one", "a" * 300, "\U0001f600")]
twin("text", texts)
write("text-large", texts, pa.schema([("text", pa.large_string())]))
write("text-snappy", texts * 1, pa.schema([("text", text)]), compression="snappy", use_dictionary=False)

# Whole numbers of every width, lists of them that are null and empty, truth values and real numbers.
ids = [{"input_ids": list(range(i)), "labels": None if i == 2 else [-100] * i, "attention_mask": [1] * i} for i in range(5)]
twin("ids", ids)
write("ids-dictionary", ids, pa.schema([("input_ids", pa.list_(pa.int32())), ("labels", pa.list_(number)),
                                        ("attention_mask", pa.list_(pa.int8()))]))
write("ids-plain", ids, pa.schema([("input_ids", pa.list_(pa.uint16())), ("labels", pa.list_(pa.int32())),
                                   ("attention_mask", pa.list_(pa.uint8()))]), use_dictionary=False)
numbers = [{"b": i % 3 == 0, "n": None if i == 4 else i % 2 == 0, "u": (1 << 64) - 1 - i, "v": (1 << 32) - 1 - i, "s": -(1 << 63) + i,
            "f": i / 4, "d": 1e300 / (i + 1)} for i in range(20)]
twin("numbers", numbers)
fields = pa.schema([("b", pa.bool_()), ("n", pa.bool_()), ("u", pa.uint64()), ("v", pa.uint32()), ("s", number), ("f", pa.float32()),
                    ("d", pa.float64())])
write("numbers-1", numbers, fields)
write("numbers-2", numbers, fields, data_page_version="2.0", use_dictionary=False, version="2.6")

# Lists in structs in lists, with null and empty ones at every depth; required fields; a column without any value.
call = pa.struct([("name", text), ("arguments", pa.list_(pa.list_(number)))])
deep = [
    {"conversations": [{"from": "human", "value": "q", "calls": None}, {"from": "gpt", "value": "a", "calls": [
        {"name": "f", "arguments": [[1, 2], [], [None, 3]]}, None, {"name": None, "arguments": None}]}], "none": None},
    {"conversations": [], "none": None},
    {"conversations": None, "none": None},
    {"conversations": [{"from": "gpt", "value": None, "calls": []}, None, {"from": "human", "value": "", "calls": [
        {"name": "g", "arguments": []}]}], "none": None},
]
turn = pa.struct([("from", text), ("value", text), ("calls", pa.list_(call))])
twin("deep", deep)
write("deep-1", deep, pa.schema([("conversations", pa.list_(turn)), ("none", pa.null())]))
write("deep-2", deep, pa.schema([("conversations", pa.list_(turn)), ("none", pa.null())]), data_page_version="2.0", row_group_size=1)
required = [{"history": [["q", "a"], ["r", "b"]], "instruction": "i"}, {"history": [], "instruction": "j"}]
twin("required", required)
strict = pa.list_(pa.field("item", pa.list_(pa.field("item", text, nullable=False)), nullable=False))
write("required-1", required, pa.schema([pa.field("history", strict, nullable=False), pa.field("instruction", text, nullable=False)]))

# 131 MB out of nothing.
same = pa.DictionaryArray.from_arrays(pa.array([0] * 2000, pa.int32()), pa.array(["a" * 65536]))
pq.write_table(pa.table({"text": same}), f"{out}/bomb.parquet", compression="zstd", store_schema=False, write_statistics=False)

# What is not read, and what of it is said.
one = [{"text": "a"}, {"text": "b"}]
for codec in ("lz4", "brotli"):
    write(f"refused-{codec}", one, pa.schema([("text", text)]), compression=codec)
write("refused-delta", one, pa.schema([("text", text)]), use_dictionary=False, column_encoding={"text": "DELTA_BYTE_ARRAY"})
for name, kind, value in (("date", pa.date32(), datetime.date(2026, 1, 1)), ("decimal", pa.decimal128(9, 2), decimal.Decimal("1.25")),
                          ("timestamp", pa.timestamp("us"), datetime.datetime(2026, 1, 1))):
    write(f"refused-{name}", [{"text": value}], pa.schema([("text", kind)]))
write("refused-map", [{"tools": [("a", "b")]}], pa.schema([("tools", pa.map_(text, text))]))
write("refused-inside", [{"messages": [{"role": "user", "at": datetime.date(2026, 1, 1)}]}],
      pa.schema([("messages", pa.list_(pa.struct([("role", text), ("at", pa.date32())])))]))
