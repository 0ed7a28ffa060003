"""What programs of Java need that are run from Python: Java, and a way to a server that listens on a Unix socket."""

import asyncio
import re
import shutil
import subprocess
import threading


def forward(socket):
    """A port of 127.0.0.1 that leads to the server's Unix socket, which the JDBC driver cannot speak to."""
    opened = threading.Event()
    port = None

    async def copy(reader, writer):
        try:
            while data := await reader.read(1 << 16):
                writer.write(data)
                await writer.drain()
        except ConnectionError:
            pass
        finally:
            writer.close()

    async def accept(reader, writer):
        server_reader, server_writer = await asyncio.open_unix_connection(socket)
        await asyncio.gather(copy(reader, server_writer), copy(server_reader, writer))

    async def serve():
        nonlocal port
        server = await asyncio.start_server(accept, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        opened.set()
        await server.serve_forever()

    threading.Thread(target=lambda: asyncio.run(serve()), daemon=True).start()
    opened.wait()
    return port


def java_home():
    """Of the java on the PATH, which is the one that is new enough; the bridge would look for another one."""
    settings = subprocess.run(
        [shutil.which("java"), "-XshowSettings:properties", "-version"], capture_output=True, text=True, check=True
    )
    return re.search(r"java\.home = (.*)", settings.stderr).group(1)
