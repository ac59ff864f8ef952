# ESP in tunnel mode (RFC 4303) by Scapy: AES-CBC (RFC 3602) and HMAC-SHA-256-128 (RFC 4868), keys by hand. Kernels and daemons
# without a packet path of their own need not have ESP for it. sealed.py serve | call SERVER HOST
import socket, sys, time

from scapy.layers.inet import IP, UDP
from scapy.layers.ipsec import ESP, SecurityAssociation
from scapy.packet import Raw

TURNS = 20
INNER = "10.99.0.1"


def association(host, inwards):
    """What a host sends by, and what it is answered by."""
    number = (0x0A0000 if inwards else 0x0B0000) + host
    key = bytes([host + 1, int(inwards)] * 16)
    return SecurityAssociation(
        ESP, spi=number, crypt_algo="AES-CBC", crypt_key=key[:16], auth_algo="SHA2-256-128", auth_key=key,
        tunnel_header=IP(src="192.0.2.250", dst="192.0.2.251"),
    )


def sealed(by, source, destination, sport, dport, text):
    """The packet from its ESP header on: around it is whatever the kernel sends it by."""
    inner = IP(src=source, dst=destination) / UDP(sport=sport, dport=dport) / Raw(text)
    return bytes(by.encrypt(inner)[ESP])


def opened(datagram, by):
    inner = by.decrypt(IP(datagram))
    return inner[IP].src, inner[IP].dst, bytes(inner[UDP].payload)


def number_of(datagram):
    return int.from_bytes(datagram[(datagram[0] & 15) * 4 :][:4], "big")


def tunnel():
    return socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ESP)


def serve():
    outer, hosts, known = tunnel(), {0x0A0000 + host: host for host in range(2)}, set()
    by = {host: (association(host, True), association(host, False)) for host in range(2)}
    while True:
        datagram, (sender, _) = outer.recvfrom(2048)
        host = hosts[number_of(datagram)]
        source, to, text = opened(datagram, by[host][0])
        assert (source, to) == (f"10.98.0.{host}", INNER), (source, to)
        if host not in known:
            known.add(host)
            print(f"host {host} from {sender}", flush=True)
        outer.sendto(sealed(by[host][1], INNER, source, 7, 7, text.upper()), (sender, 0))


def call(server, host):
    outer, own = tunnel(), f"10.98.0.{host}"
    outer.settimeout(0.5)
    out, back, heard = association(host, True), association(host, False), 0
    for turn in range(TURNS):
        text = f"host {host} says {turn}".encode()
        # As whoever is above the tunnel would: what is not answered is said again.
        until = time.monotonic() + 12
        while time.monotonic() < until:
            outer.sendto(sealed(out, own, INNER, 7, 7, text), (server, 0))
            try:
                datagram = outer.recv(2048)
            except TimeoutError:
                continue
            # Another host's would not decrypt: that is an error, and ends this.
            assert number_of(datagram) == 0x0B0000 + host, hex(number_of(datagram))
            if opened(datagram, back) == (INNER, own, text.upper()):
                heard += 1
                break
    print(f"host {host}: {heard} of {TURNS}", flush=True)


serve() if sys.argv[1] == "serve" else call(sys.argv[2], int(sys.argv[3]))
