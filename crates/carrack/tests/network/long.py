# A control connection of FTP with a line of ten megabytes in it, and what the server heard.
import socket, sys, time

LENGTH = 10 * 1024 * 1024

def serve(address):
    stream, _ = socket.create_server((address, 21)).accept()
    lines = stream.makefile("rwb")
    lines.write(b"220 ready\r\n")
    lines.flush()
    for line in lines:
        whole = line == b"PORT 10," + b"1" * (LENGTH - 10) + b"\r\n"
        said = b"200 heard " + (b"all of it" if whole else line[:60].strip()) + b"\r\n"
        lines.write(said)
        lines.flush()

# The server may not listen yet.
def connect(server):
    for _ in range(50):
        try:
            return socket.create_connection((server, 21), 5)
        except ConnectionRefusedError:
            time.sleep(0.1)
    raise TimeoutError("nobody listens")

def say(server):
    stream = connect(server)
    stream.settimeout(30)
    own = stream.getsockname()[0].replace(".", ",")
    lines = stream.makefile("rwb")
    lines.readline()
    for line in [b"PORT 10," + b"1" * (LENGTH - 10), f"PORT {own},19,137".encode(), b"PORT 203,0,113,99,19,137"]:
        lines.write(line + b"\r\n")
        lines.flush()
        print(lines.readline().decode().strip(), flush=True)

if sys.argv[1] == "serve":
    serve(sys.argv[2])
else:
    say(sys.argv[2])
