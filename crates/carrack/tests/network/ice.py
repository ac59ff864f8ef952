# One ICE agent (RFC 8445). Tells its candidates of the wanted kinds through files, connects, and says whom to.
import asyncio, json, os, sys
import aioice

role, stun, directory, kinds = sys.argv[1:]

async def main():
    connection = aioice.Connection(ice_controlling=role == "a", stun_server=(stun, 3478))
    await connection.gather_candidates()
    chosen = [c.to_sdp() for c in connection.local_candidates if c.type in kinds.split(",")]
    mine = {"user": connection.local_username, "password": connection.local_password, "candidates": chosen}
    with open(f"{directory}/ice-{role}.new", "w") as out:
        json.dump(mine, out)
    os.rename(f"{directory}/ice-{role}.new", f"{directory}/ice-{role}")
    other = f"{directory}/ice-{'b' if role == 'a' else 'a'}"
    while not os.path.exists(other):
        await asyncio.sleep(0.05)
    theirs = json.load(open(other))
    for candidate in theirs["candidates"]:
        await connection.add_remote_candidate(aioice.Candidate.from_sdp(candidate))
    await connection.add_remote_candidate(None)
    connection.remote_username, connection.remote_password = theirs["user"], theirs["password"]
    await asyncio.wait_for(connection.connect(), 10)
    await connection.send(f"hello from {role}".encode())
    heard = await asyncio.wait_for(connection.recv(), 5)
    pair = connection._nominated[1]
    print(heard.decode(), "at", pair.remote_addr[0], flush=True)
    await asyncio.sleep(0.5)
    await connection.close()

asyncio.run(main())
