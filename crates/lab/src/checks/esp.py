# ESP (RFC 4303) as far as a NAT sees it: packets with a number that their receiver has chosen. What IKE would have told
# the server, how to answer, is in the packets themselves.
import os, socket, struct, sys, time

ESP = 50

def packet(spi, turn, text):
    return struct.pack("!II", spi, turn) + text

def opened(datagram):
    body = datagram[(datagram[0] & 15) * 4:]
    spi, turn = struct.unpack("!II", body[:8])
    return spi, turn, body[8:]

def serve(address):
    tunnels = socket.socket(socket.AF_INET, socket.SOCK_RAW, ESP)
    tunnels.bind((address, 0))
    known = set()
    while True:
        datagram, (sender, _) = tunnels.recvfrom(2048)
        spi, turn, body = opened(datagram)
        if spi not in known:
            known.add(spi)
            print(f"tunnel {spi:#x} of {sender} begins", flush=True)
        back, = struct.unpack("!I", body[:4])
        tunnels.sendto(packet(back, turn, body[4:].upper()), (sender, 0))

def call(server, _, directory, text, other):
    tunnel = socket.socket(socket.AF_INET, socket.SOCK_RAW, ESP)
    tunnel.settimeout(0.3)
    first = 0x10000 * (1 + len(text))
    # Both at once: one of them waits for the other's answer.
    open(f"{directory}/esp-{text}", "w").close()
    for _ in range(100):
        if os.path.exists(f"{directory}/esp-{other}"):
            break
        time.sleep(0.05)
    for keys in range(2):
        out, back = first + keys, first + 0x1000 + keys
        for turn in range(4):
            # As the host above the tunnel would: what is not answered is sent again.
            for _ in range(30):
                tunnel.sendto(packet(out, turn, struct.pack("!I", back) + text.encode()), (server, 0))
                try:
                    answer = opened(tunnel.recvfrom(2048)[0])
                    while answer[1] != turn:
                        answer = opened(tunnel.recvfrom(2048)[0])
                    break
                except TimeoutError:
                    continue
            else:
                raise TimeoutError(f"nobody answers {out:#x}")
            assert (answer[0], answer[2]) == (back, text.upper().encode()), answer
    print("heard", text.upper(), flush=True)

if sys.argv[1] == "serve":
    serve(sys.argv[2])
else:
    call(*sys.argv[2:])
