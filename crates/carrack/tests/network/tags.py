"""VLAN interfaces for a kernel that has none: `tags.py WIRE TAP@NAMESPACE=TAGS...`.

Each TAP is an ordinary Ethernet device in that namespace for ordinary programs. What they send leaves by WIRE with
TAGS, outermost first, like 88a8.200,8100.7; what WIRE receives with exactly these tags arrives there without them.
Anything else that WIRE receives is told, octets first, on a line that begins with `unknown`.
"""

import fcntl
import os
import select
import socket
import struct
import subprocess
import sys

SOL_PACKET, PACKET_AUXDATA, PACKET_OUTGOING = 263, 8, 4
TAG_VALID, TAG_TYPE_VALID = 0x10, 0x40
TUNSETIFF, IFF_TAP, IFF_NO_PI = 0x400454CA, 2, 0x1000
SO_RCVBUFFORCE = 33


def tags_of(text):
    pairs = (tag.split(".") for tag in text.split(","))
    return b"".join(struct.pack("!HH", int(kind, 16), int(number)) for kind, number in pairs)


def tap(name, namespace):
    fd = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(fd, TUNSETIFF, struct.pack("16sH22x", name.encode(), IFF_TAP | IFF_NO_PI))
    subprocess.run(["ip", "link", "set", name, "netns", namespace], check=True)
    return fd


def whole(wire):
    """The next frame as it was on the wire: the kernel hands its outer tag over beside it. None for our own."""
    frame, beside, _, sender = wire.recvmsg(65536, 256)
    if sender[2] == PACKET_OUTGOING:
        return None
    for level, kind, data in beside:
        if (level, kind) == (SOL_PACKET, PACKET_AUXDATA):
            status, _, _, _, _, tag, tag_type = struct.unpack("IIIHHHH", data[:20])
            if status & TAG_VALID:
                tag_type = tag_type if status & TAG_TYPE_VALID else 0x8100
                frame = frame[:12] + struct.pack("!HH", tag_type, tag) + frame[12:]
    return frame


def deliver(frame, taps):
    at = 12
    while frame[at : at + 2] in (b"\x81\x00", b"\x88\xa8"):
        at += 4
    fd = taps.get(frame[12:at])
    if fd is None:
        print("unknown", frame[:32].hex(), flush=True)
    else:
        os.write(fd, frame[:12] + frame[at:])


def main():
    wire = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
    wire.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 1 << 24)
    wire.setsockopt(SOL_PACKET, PACKET_AUXDATA, 1)
    wire.bind((sys.argv[1], 0))
    wire.setblocking(False)
    taps = {}
    for word in sys.argv[2:]:
        place, tags = word.split("=")
        taps[tags_of(tags)] = tap(*place.split("@"))
    ready = select.poll()
    for fd in [wire.fileno(), *taps.values()]:
        ready.register(fd, select.POLLIN)
    tags = {fd: tags for tags, fd in taps.items()}
    print("ready", flush=True)
    while True:
        for fd, _ in ready.poll():
            try:
                if fd == wire.fileno():
                    frame = whole(wire)
                    if frame:
                        deliver(frame, taps)
                else:
                    frame = os.read(fd, 65536)
                    wire.send(frame[:12] + tags[fd] + frame[12:])
            except (BlockingIOError, OSError):
                # A tap that is still down takes nothing, and a full queue is a loss as on any wire.
                pass


main()
