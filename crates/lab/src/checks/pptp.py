# A PPTP server and client (RFC 2637) as far as calls go: control connection, then a frame of enhanced GRE each way.
import os, socket, struct, sys, threading, time

COOKIE = 0x1A2B3C4D

# In one piece: several threads have something to tell.
def tell(line):
    sys.stdout.write(line + "\n")
    sys.stdout.flush()

def message(kind, body):
    return struct.pack("!HHIHH", 12 + len(body), 1, COOKIE, kind, 0) + body

def receive(stream):
    head = stream.recv(12, socket.MSG_WAITALL)
    if len(head) < 12:
        return 0, b""
    length, _, cookie, kind, _ = struct.unpack("!HHIHH", head)
    assert cookie == COOKIE, head
    return kind, stream.recv(length - 12, socket.MSG_WAITALL)

def frame(call, text):
    return struct.pack("!BBHHHI", 0x30, 0x01, 0x880B, len(text), call, 1) + text

def opened(packet):
    body = packet[(packet[0] & 15) * 4:]
    if len(body) < 12 or body[:4] != b"\x30\x01\x88\x0b":
        return None, None
    return struct.unpack("!H", body[6:8])[0], body[12:]

def start_reply(kind):
    return message(kind, struct.pack("!HBBIIHH", 0x100, 1, 0, 3, 3, 0, 1) + bytes(128))

def serve(address):
    calls, lock = {}, threading.Lock()
    tunnel = socket.socket(socket.AF_INET, socket.SOCK_RAW, 47)
    tunnel.bind((address, 0))

    def echo():
        while True:
            packet, (sender, _) = tunnel.recvfrom(2048)
            call, text = opened(packet)
            with lock:
                peer = calls.get((sender, call))
            if peer is not None:
                tunnel.sendto(frame(peer, text.upper()), (sender, 0))

    def attend(stream, sender):
        while True:
            kind, body = receive(stream)
            if kind == 0:
                return
            if kind == 1:
                stream.sendall(start_reply(2))
            if kind == 7:
                with lock:
                    mine = 700 + len(calls)
                    theirs = struct.unpack("!H", body[:2])[0]
                    taken = theirs in [peer for (ip, _), peer in calls.items() if ip == sender]
                    calls[(sender, mine)] = theirs
                tell(f"call of {sender} is {theirs} {'again' if taken else ''}")
                reply = struct.pack("!HHBBHIHHI", mine, theirs, 1, 0, 0, 64000, 64, 0, 0)
                stream.sendall(message(8, reply))
            if kind == 12:
                tell(f"end of {struct.unpack('!H', body[:2])[0]}")
                stream.sendall(message(13, struct.pack("!HBBHH", 0, 1, 0, 0, 0) + bytes(128)))

    threading.Thread(target=echo, daemon=True).start()
    control = socket.create_server((address, 1723))
    while True:
        stream, (sender, _) = control.accept()
        threading.Thread(target=attend, args=(stream, sender), daemon=True).start()

# The server may not listen yet.
def connect(server):
    for _ in range(50):
        try:
            return socket.create_connection((server, 1723), 5)
        except ConnectionRefusedError:
            time.sleep(0.1)
    raise TimeoutError("nobody listens")

# As a host would: what is not answered is sent again.
def answered(tunnel, question, server):
    for _ in range(50):
        tunnel.sendto(question, (server, 0))
        try:
            while True:
                packet, (sender, _) = tunnel.recvfrom(2048)
                if sender == server:
                    return opened(packet)
        except TimeoutError:
            continue
    raise TimeoutError("nobody answers a frame")

def call(server, own, directory, text, other):
    tunnel = socket.socket(socket.AF_INET, socket.SOCK_RAW, 47)
    tunnel.settimeout(0.3)
    stream = connect(server)
    stream.settimeout(15)
    stream.sendall(start_reply(1))
    assert receive(stream)[0] == 2
    request = struct.pack("!HHIIIIHHHH", own, 1, 300, 100000000, 3, 3, 64, 0, 0, 0) + bytes(128)
    stream.sendall(message(7, request))
    kind, body = receive(stream)
    theirs, mine = struct.unpack("!HH", body[:4])
    assert (kind, mine) == (8, own), (kind, mine)
    # Once both clients have their calls: what comes back is one's own, or the NAT has mixed them up.
    open(f"{directory}/called-{text}", "w").close()
    for _ in range(100):
        if os.path.exists(f"{directory}/called-{other}"):
            break
        time.sleep(0.05)
    for turn in range(3):
        at, heard = answered(tunnel, frame(theirs, text.encode()), server)
        assert (at, heard) == (own, text.upper().encode()), (at, heard)
    stream.sendall(message(12, struct.pack("!HH", own, 0)))
    assert receive(stream)[0] == 13
    tell(f"heard {heard.decode()}")

if sys.argv[1] == "serve":
    serve(sys.argv[2])
else:
    call(sys.argv[2], int(sys.argv[3]), *sys.argv[4:])
