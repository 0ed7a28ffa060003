"""SMTP servers of aiosmtpd, each on a port of its own choice: with AUTH, with a limit, and with faults on request.

Arguments: a directory with `key`, `chain` (TLS), `password` and `token` (read at each login), and `mails`, where what was
taken goes, with a Delivered-To header for each recipient. A mail whose first recipient has the name of a fault before
a hyphen, as in `after-1@example.com`, meets this fault once:

before  the connection is lost at RCPT
within  the connection is lost in the middle of the content
after   the connection is lost after the content, which was taken
leave   421 at RCPT
down    421 after the content
full    452 after the content
"""

import asyncio
import base64
import pathlib
import ssl
import sys

from aiosmtpd.smtp import MISSING, SMTP, AuthResult

home = pathlib.Path(sys.argv[1])


def secret(name):
    return (home / name).read_bytes().strip()


class Handler:
    def __init__(self):
        self.met = set()
        self.taken = 0

    def meets(self, address, *faults):
        fault = address.split("-")[0]
        if fault not in faults or address in self.met:
            return None
        self.met.add(address)
        return fault

    async def handle_RCPT(self, server, session, envelope, address, options):
        match self.meets(address, "before", "leave"):
            case "before":
                server.transport.abort()
            case "leave":
                return leave(server)
        envelope.rcpt_tos.append(address)
        return "250 2.1.5 Ok"

    async def handle_DATA(self, server, session, envelope):
        match self.meets(envelope.rcpt_tos[0], "after", "down", "full"):
            case "after":
                self.take(envelope)
                server.transport.abort()
            case "down":
                return leave(server)
            case "full":
                return "452 4.3.1 No space is left"
            case None:
                self.take(envelope)
        return f"250 2.0.0 Ok: queued as A{self.taken}"

    def take(self, envelope):
        self.taken += 1
        recipients = "".join(f"Delivered-To: {one}\n" for one in envelope.rcpt_tos)
        content = recipients.encode() + envelope.original_content.replace(b"\r\n", b"\n")
        path = home / "mails" / f"{self.taken:05}"
        path.write_bytes(content)

    async def auth_XOAUTH2(self, server, args):
        words = base64.b64decode(args[1])
        if words == b"user=shop\x01auth=Bearer " + secret("token") + b"\x01\x01":
            return AuthResult(success=True)
        if await server.challenge_auth('{"status":"401"}') is MISSING:
            return AuthResult(success=False, handled=True)
        return AuthResult(success=False, handled=False)


def leave(server):
    # After the reply, which is written first.
    server.loop.call_soon(server.transport.close)
    return "421 4.3.2 Going down"


class Server(SMTP):
    async def smtp_DATA(self, arg):
        first = self.envelope.rcpt_tos[:1]
        if first and self.event_handler.meets(first[0], "within"):
            await self.push("354 Go on")
            await self._reader.readuntil(b"\r\n")
            self.transport.abort()
            return
        await super().smtp_DATA(arg)


def authenticate(server, session, envelope, mechanism, data):
    is_right = (data.login, data.password) == (b"shop", secret("password"))
    return AuthResult(success=is_right, handled=False)


async def main():
    loop = asyncio.get_running_loop()
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(home / "chain", home / "key")
    handler = Handler()
    login = {"auth_required": True, "authenticator": authenticate}
    for name, more in {
        "faulty": {},
        "limited": {"command_call_limit": {"MAIL": 5, "*": 1000}},
        "plain": login | {"auth_exclude_mechanism": ["LOGIN", "XOAUTH2"]},
        "login": login | {"auth_exclude_mechanism": ["PLAIN", "XOAUTH2"]},
        "xoauth2": login | {"auth_exclude_mechanism": ["PLAIN", "LOGIN"]},
    }.items():
        def start(more=more):
            return Server(
                handler, hostname="localhost", loop=loop, enable_SMTPUTF8=True, tls_context=tls, require_starttls=True, **more
            )

        server = await loop.create_server(start, "127.0.0.1", 0)
        print(f"{name} {server.sockets[0].getsockname()[1]}", flush=True)
    await asyncio.Event().wait()


asyncio.run(main())
