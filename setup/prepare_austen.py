#!/usr/bin/env python3
"""Six novels from the R package janeaustenr: train.txt (five) and valid.txt (Northanger Abbey).

usage: prepare_austen.py Rdata.rdb OUT_FOLDER

Rdata.rdb holds R objects one after the other, each as a 4-byte big-endian size and a zlib stream. A novel is a character
vector of hard-wrapped lines; they are joined to one line a paragraph, with an empty line between paragraphs.
"""
import pathlib
import struct
import sys
import zlib

STRSXP, CHARSXP = 16, 9  # type codes of R's serialisation: character vector, one string
UTF8, ASCII = 0x8000, 0x40000


def objects(raw):
    at = 0
    while at < len(raw):
        size, = struct.unpack_from(">I", raw, at)
        stream = zlib.decompressobj()
        data = stream.decompress(raw[at + 4:])
        if len(data) != size:
            sys.exit("error: Rdata.rdb is damaged")
        yield data
        at = len(raw) - len(stream.unused_data)


def vector_at(data, at):
    """The character vector whose length field is at `at`, or None when there is none."""
    count, = struct.unpack_from(">i", data, at)
    at += 4
    if not 0 < count < 1 << 20:
        return None
    lines = []
    for _ in range(count):
        if at + 8 > len(data):
            return None
        flags, size = struct.unpack_from(">ii", data, at)
        at += 8
        if flags & 0xff != CHARSXP or size < -1 or at + max(size, 0) > len(data):
            return None
        text = data[at:at + max(size, 0)]
        lines.append(text.decode("utf-8" if flags & (UTF8 | ASCII) else "latin-1"))
        at += max(size, 0)
    return lines


def longest_vector(data):
    best, at, mark = [], 0, struct.pack(">i", STRSXP)
    while (at := data.find(mark, at)) >= 0:
        if at + 8 <= len(data):
            vector = vector_at(data, at + 4)
            if vector and len(vector) > len(best):
                best = vector
        at += 1
    return best


def reflow(lines):
    paragraphs, words = [], []
    for line in lines + [""]:
        if line.strip():
            words.append(line.strip())
        elif words:
            paragraphs.append(" ".join(words))
            words = []
    return "\n\n".join(paragraphs) + "\n"


def main(source, folder):
    novels = {}
    for data in objects(pathlib.Path(source).read_bytes()):
        lines = longest_vector(data)
        if lines:
            novels[next(line.strip() for line in lines if line.strip())] = reflow(lines)
    valid = [title for title in novels if "NORTHANGER" in title.upper()]
    if len(novels) != 6 or len(valid) != 1:
        sys.exit(f"error: expected six novels, found {sorted(novels)}")
    text = novels.pop(valid[0])
    pathlib.Path(folder, "valid.txt").write_bytes(text.encode())
    pathlib.Path(folder, "train.txt").write_bytes("\n\n".join(novels[title] for title in sorted(novels)).encode())


if __name__ == "__main__":
    main(*sys.argv[1:])
