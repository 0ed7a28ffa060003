"""Reads the mails in the files of a directory with Python's own parser, and prints what they say as JSON."""

import email
import email.errors
import email.policy
import functools
import json
import pathlib
import sys


def split(path):
    """The headers that the server put before the mail, and the mail."""
    head, end, mail = path.read_bytes().partition(b"\nFrom: ")
    return head + b"\n\n", end[1:] + mail


def read(path):
    head, mail = split(path)
    head = email.message_from_string(head.decode())
    return parse(mail) | {"delivered_to": head.get_all("Delivered-To", []), "received": head["Received"]}


# Most copies are of the same mails.
@functools.cache
def parse(content):
    is_ascii = content.split(b"\n\n", 1)[0].isascii()
    if is_ascii:
        mail = email.message_from_bytes(content, policy=email.policy.default)
    else:
        # Addresses beyond ASCII, which SMTPUTF8 allows.
        mail = email.message_from_string(content.decode(), policy=email.policy.default)

    def addresses(name):
        header = mail[name]
        return [] if header is None else [(one.display_name, one.addr_spec) for one in header.addresses]

    def body(kind):
        part = mail.get_body((kind,))
        return None if part is None else part.get_content()

    def tree(part):
        parts = part.iter_parts() if part.is_multipart() else ()
        return part.get_content_type() + "".join(f"({tree(one)})" for one in parts)

    files = [part for part in mail.walk() if part.get_content_disposition() is not None]
    defects = [defect for part in mail.walk() for defect in part.defects]
    defects += [defect for header in mail.values() for defect in header.defects]
    if not is_ascii:
        defects = [defect for defect in defects if not isinstance(defect, email.errors.NonASCIILocalPartDefect)]
    return {
        "message_id": mail["Message-ID"],
        "id": mail["X-Mailroom-Message-ID"],
        "from": addresses("From"),
        "to": addresses("To"),
        "cc": addresses("Cc"),
        "bcc": addresses("Bcc"),
        "reply_to": addresses("Reply-To"),
        "subject": mail["Subject"] or "",
        "text": body("plain"),
        "html": body("html"),
        "auto_submitted": mail["Auto-Submitted"],
        "x_order": mail["X-Order"] or "",
        "list_unsubscribe": mail["List-Unsubscribe"] or "",
        "files": [
            {
                "filename": part.get_filename(),
                # Some readers know only this.
                "name": part["Content-Type"].params["name"],
                "content_type": part.get_content_type(),
                "content_id": part["Content-ID"] and part["Content-ID"].strip("<>"),
                "content": part.get_payload(decode=True).hex(),
            }
            for part in files
        ],
        "tree": tree(mail),
        "defects": [repr(defect) for defect in defects],
    }


json.dump([read(path) for path in sorted(pathlib.Path(sys.argv[1]).iterdir())], sys.stdout)
