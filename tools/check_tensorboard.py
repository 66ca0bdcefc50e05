#!/usr/bin/env python3
"""Checks TensorBoard event files: tools/check_tensorboard.py FILE_OR_FOLDER ...

Decodes every record by hand, written from the formats' own descriptions and not from our C++:
framing, both check sums, the fields of Event. Where TensorBoard is installed its reader has to
agree, value for value. Prints the scalars it found; exits 1 on any disagreement.
"""

import pathlib
import struct
import sys


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def masked(data):
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def records(data):
    at = 0
    while at < len(data):
        if len(data) - at < 16:
            raise ValueError(f"byte {at}: {len(data) - at} bytes are no record")
        length, length_crc = struct.unpack_from("<QI", data, at)
        if masked(data[at : at + 8]) != length_crc:
            raise ValueError(f"byte {at}: the length does not match its check sum")
        body = data[at + 12 : at + 12 + length]
        if len(data) < at + 16 + length:
            raise ValueError(f"byte {at}: a record of {length} bytes is cut off")
        if masked(body) != struct.unpack_from("<I", data, at + 12 + length)[0]:
            raise ValueError(f"byte {at}: the event does not match its check sum")
        yield body
        at += 16 + length


def varint(data, at):
    value = shift = 0
    while True:
        value |= (data[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if data[at - 1] < 0x80:
            return value, at


def fields(data):
    """(number, value) of a protobuf message: bytes, int, or the raw bytes of a fixed number."""
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        if key & 7 == 0:
            value, at = varint(data, at)
        else:
            size = {1: 8, 5: 4}.get(key & 7)
            if key & 7 == 2:
                size, at = varint(data, at)
            value, at = data[at : at + size], at + size
        yield key >> 3, value


def events(path):
    """(kind, step, [(tag, value)]) of each record."""
    for body in records(path.read_bytes()):
        event = dict(fields(body))
        if 1 not in event or struct.unpack("<d", event[1])[0] <= 0:
            raise ValueError("an event without wall time")
        kind = {3: "version", 5: "scalars", 7: "restart"}[next(k for k in event if k > 2)]
        scalars = []
        for _, value in fields(event.get(5, b"")):
            parts = dict(fields(value))
            scalars.append((parts[1].decode(), struct.unpack("<f", parts[2])[0]))
        if kind == "version" and event[3] != b"brain.Event:2":
            raise ValueError(f"file version {event[3]!r}")
        yield kind, event.get(2, 0), scalars


def check_by_hand(path):
    found = list(events(path))
    if not found or found[0][0] != "version":
        raise ValueError("does not start with the file version")
    by_tag = {}
    for _, step, scalars in found:
        for tag, value in scalars:
            by_tag.setdefault(tag, []).append((step, value))
    return by_tag


def check_with_tensorboard(path, by_tag):
    """True when TensorBoard is there and agrees, False when it is not there."""
    try:
        from tensorboard.backend.event_processing.event_file_loader import EventFileLoader
    except ImportError:
        return False
    theirs = {}
    for event in EventFileLoader(str(path)).Load():
        for value in event.summary.value:
            # Newer loaders turn simple_value into a tensor.
            number = value.tensor.float_val[0] if value.HasField("tensor") else value.simple_value
            theirs.setdefault(value.tag, []).append((event.step, number))
    if repr(theirs) != repr(by_tag):  # repr, so that NaN equals NaN
        raise ValueError(f"TensorBoard reads {theirs}, by hand it is {by_tag}")
    return True


def event_files(arguments):
    for argument in map(pathlib.Path, arguments):
        yield from sorted(argument.glob("**/*tfevents*")) if argument.is_dir() else [argument]


def main(arguments):
    paths = list(event_files(arguments))
    if not paths:
        print(__doc__ if not arguments else "no event file found", file=sys.stderr)
        return 1
    for path in paths:
        try:
            by_tag = check_by_hand(path)
            reader = "TensorBoard agrees" if check_with_tensorboard(path, by_tag) else "TensorBoard is not installed"
        except (ValueError, KeyError, IndexError, struct.error, StopIteration) as error:
            print(f"{path}: {error}", file=sys.stderr)
            return 1
        print(f"{path}: good by hand; {reader}")
        for tag, points in by_tag.items():
            print(f"  {tag}: {len(points)} points, last {points[-1][1]:.6g} at step {points[-1][0]}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
