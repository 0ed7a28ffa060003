"""A server that refuses some recipients, and files what comes for the others."""

from aiosmtpd import handlers


class Mailbox(handlers.Mailbox):
    async def handle_RCPT(self, server, session, envelope, address, options):
        if address.startswith("refused"):
            return "550 5.1.1 <%s> is not known here" % address
        envelope.rcpt_tos.append(address)
        return "250 2.1.5 OK"
