"""The fields of a request, with the same names for each provider and each maker of requests.

What is in no field of its own is in `other`, and no member of a body is left out.
"""

import base64
import email
import email.policy
import json
import re
from urllib.parse import parse_qsl

# Of the client's, and what a signature covers: that is held to botocore elsewhere.
HTTP_HEADERS_LEFT_OUT = (
    "accept",
    "accept-encoding",
    "connection",
    "content-length",
    "host",
    "user-agent",
    "x-amz-date",
    "amz-sdk-invocation-id",
    "amz-sdk-request",
)
# SES makes those of the body itself where it is not given a message; the others differ each time.
MIME_HEADERS_LEFT_OUT = ("content-transfer-encoding", "content-type", "mime-version")


def of(provider, request):
    """The fields of this request, `part.member` for each member of a part."""
    fields = {"request": f"{request['method']} {request['url']}", "http": {}}
    for name, value in request["headers"].items():
        name = name.lower()
        if name not in HTTP_HEADERS_LEFT_OUT:
            fields["http"][name] = http_value(name, value)
    fields.update(OF[provider](base64.b64decode(request["body"])))
    flat = {}
    for name, value in fields.items():
        if isinstance(value, dict):
            flat.update({f"{name}.{member}": inner for member, inner in value.items()})
        elif value is not None:
            flat[name] = value
    return flat


def http_value(name, value):
    if name == "content-type":
        return value.split(";")[0]
    if name == "authorization" and value.startswith("AWS4-HMAC-SHA256 Credential="):
        key, _, region, service, _ = value.split("=")[1].split(",")[0].split("/")
        return f"AWS {key} {region} {service}"
    return value


def addresses(text):
    """Of a header, with names and encoded words."""
    header = email.policy.default.header_factory("To", text)
    return [(address.display_name, address.addr_spec) for address in header.addresses]


def sender(text):
    [(name, address)] = addresses(text)
    return {"name": name, "address": address}


def recipients(texts):
    people = [one for text in texts for one in addresses(text)]
    return [address if not name else [name, address] for name, address in people] or None


def joined(people):
    """Names without spaces: Python's parser puts some between the encoded words of a long one."""
    return people and [[one[0].replace(" ", ""), one[1]] if isinstance(one, list) else one for one in people]


def bare(people):
    return [one[1] if isinstance(one, list) else one for one in people or []]


def named(pairs):
    """Headers, by their names in lower case."""
    headers = {}
    for name, value in pairs:
        if name.lower() in headers:
            raise ValueError(f"two headers {name}")
        headers[name.lower()] = value
    return headers


def labelled(tags):
    """Pairs of name and value: the kind is a tag, and the others are metadata."""
    values = {tag["name"]: tag["value"] for tag in tags}
    kind = values.pop("kind", None)
    return {"tags": kind and [kind], "metadata": values}


def files(of, all):
    """Each file by `of`; `None` for a mail without."""
    return [of(one) for one in all] or None


def file(name, type, content, id=None, **other):
    """A file; the members that have no name here are kept as they are."""
    message = email.message.Message()
    message["Content-Type"] = type
    parameters = [f"{name}={value}" for name, value in message.get_params()[1:] if name != "name"]
    one = {"name": name, "type": "; ".join([message.get_content_type(), *parameters]), "content": content}
    return {**one, **({"id": id} if id else {}), **other}


def off(value):
    return "off" if value in (False, "no", "None", "DISABLED") else value


def sendgrid(body):
    body = json.loads(body)
    [people] = body.pop("personalizations")
    [*contents] = body.pop("content")
    contents = {content["type"]: content["value"] for content in contents}
    tracking = body.pop("tracking_settings")
    clicks = tracking.pop("click_tracking")
    settings = {"clicks": off(clicks.pop("enable"))}
    settings.update({f"clicks.{name}": off(value) for name, value in clicks.items()})
    for name, setting in tracking.items():
        settings[name.removesuffix("_tracking")] = off(setting.pop("enable"))
        settings.update({f"{name}.{more}": value for more, value in setting.items()})
    settings["opens"] = settings.pop("open")
    who = lambda name: [one.pop("email") if len(one) == 1 else one for one in people.pop(name, [])]
    from_ = body.pop("from")
    one = body.pop("reply_to", None)
    answers = body.pop("reply_to_list", [one] if one else [])
    # They may be of the only mail, or of all mails of the request.
    both = lambda name: {**body.pop(name, {}), **people.pop(name, {})}
    return {
        "from": {"name": from_.pop("name", ""), "address": from_.pop("email")},
        **{name: who(name) or None for name in ("to", "cc", "bcc")},
        "reply_to": [one.pop("email") if len(one) == 1 else one for one in answers] or None,
        "subject": body.pop("subject"),
        "text": contents.pop("text/plain", None),
        "html": contents.pop("text/html", None),
        "tags": body.pop("categories"),
        "metadata": both("custom_args"),
        "headers": named(both("headers").items()),
        "tracking": settings,
        "files": files(sendgrid_file, body.pop("attachments", [])),
        "other": {**body, **people, **from_, **contents},
    }


def sendgrid_file(one):
    id = one.pop("content_id", None)
    if one.pop("disposition", "attachment") != ("inline" if id else "attachment"):
        raise ValueError("a file with an id is inline")
    return file(name=one.pop("filename"), id=id, **one)


def postmark(body):
    body = json.loads(body)
    tag = body.pop("Tag")
    return {
        "from": sender(body.pop("From")),
        **{name.lower(): recipients([body.pop(name, "")]) for name in ("To", "Cc", "Bcc")},
        "reply_to": recipients([body.pop("ReplyTo", "")]),
        "subject": body.pop("Subject"),
        "text": body.pop("TextBody", None),
        "html": body.pop("HtmlBody", None),
        "tags": [tag],
        "metadata": body.pop("Metadata"),
        "headers": named((one["Name"], one["Value"]) for one in body.pop("Headers")),
        "tracking": {
            "clicks": off(body.pop("TrackLinks")),
            "opens": off(body.pop("TrackOpens")),
        },
        "files": files(postmark_file, body.pop("Attachments", [])),
        "other": body,
    }


def postmark_file(one):
    names = {"Name": "name", "ContentType": "type", "Content": "content", "ContentID": "id"}
    return file(**{names.get(name, name): value for name, value in one.items()})


def resend(body):
    body = json.loads(body)
    return {
        "from": sender(body.pop("from")),
        **{name: recipients(body.pop(name, [])) for name in ("to", "cc", "bcc", "reply_to")},
        **{name: body.pop(name, None) for name in ("subject", "text", "html")},
        **labelled(body.pop("tags", [])),
        "headers": named(body.pop("headers").items()),
        "files": files(resend_file, body.pop("attachments", [])),
        "other": body,
    }


def resend_file(one):
    names = {"filename": "name", "content_type": "type", "content_id": "id"}
    return file(**{names.get(name, name): value for name, value in one.items()})


def parts(body):
    """Headers and contents of each part of a form with files."""
    boundary, _ = body.split(b"\r\n", 1)
    for part in (b"\r\n" + body).split(b"\r\n" + boundary)[1:-1]:
        head, content = part.removeprefix(b"\r\n").split(b"\r\n\r\n", 1)
        headers = dict(line.split(": ", 1) for line in head.decode().split("\r\n"))
        names = dict(re.findall(r'(\w+)="([^"]*)"', headers["Content-Disposition"]))
        yield names, headers.get("Content-Type"), content


def mailgun(body):
    form = {}
    attached = []
    if body.startswith(b"--"):
        for names, type, content in parts(body):
            if "filename" in names:
                content = base64.b64encode(content).decode()
                attached.append({"field": names["name"], **file(names["filename"], type, content)})
            else:
                form.setdefault(names["name"], []).append(content.decode())
    else:
        for name, value in parse_qsl(body.decode(), keep_blank_values=True, strict_parsing=True):
            form.setdefault(name, []).append(value)

    def one(name):
        values = form.pop(name, [None])
        if len(values) > 1:
            raise ValueError(f"{name} is there {len(values)} times")
        return values[0]

    def prefixed(prefix):
        names = [name for name in form if name.startswith(prefix)]
        return {name.removeprefix(prefix): one(name) for name in names}

    who = {name: recipients(form.pop(name, [])) for name in ("to", "cc", "bcc")}
    tracking = prefixed("o:tracking")
    return {
        "from": sender(one("from")),
        **who,
        "reply_to": recipients(form.pop("h:Reply-To", [])),
        **{name: one(name) for name in ("subject", "text", "html")},
        "tags": form.pop("o:tag"),
        "metadata": prefixed("v:"),
        "headers": named(prefixed("h:").items()),
        "tracking": {name.lstrip("-") or "all": off(value) for name, value in tracking.items()},
        "files": attached or None,
        "other": form,
    }


def ses(body):
    body = json.loads(body)
    content = body.pop("Content")
    people = body.pop("Destination")
    tracking = body.pop("ConfigurationOverrides").pop("Tracking")
    tags = [{"name": tag["Name"], "value": tag["Value"]} for tag in body.pop("EmailTags")]
    said = simple(content.pop("Simple")) if "Simple" in content else raw(content.pop("Raw"))
    from_ = body.pop("FromEmailAddress", None) or said.pop("from")
    to = {name: recipients(people.pop(f"{name.title()}Addresses", [])) for name in ("to", "cc", "bcc")}
    # A message names those who see each other, too; then the destination need not have their names.
    for name in ("to", "cc"):
        shown = said.pop(name, to[name])
        if bare(shown) != bare(to[name]):
            raise ValueError(f"{name} differs from the destination")
        to[name] = shown
    to["reply_to"] = said.pop("reply_to", None) or recipients(body.pop("ReplyToAddresses", []))
    return {
        "from": sender(from_),
        **{name: joined(people) for name, people in to.items()},
        **said,
        **labelled(tags),
        "tracking": {
            "clicks": off(tracking.pop("ClickTrackingEnabled")),
            "opens": off(tracking.pop("OpenTrackingEnabled")),
        },
        "other": {**body, **content, **people, **tracking},
    }


def simple(content):
    bodies = content["Body"]
    texts = {"subject": content["Subject"], "text": bodies.get("Text"), "html": bodies.get("Html")}
    for text in texts.values():
        if text is not None and text["Charset"] != "UTF-8":
            raise ValueError("not UTF-8")
    return {
        **{name: text and text["Data"] for name, text in texts.items()},
        "headers": named((one["Name"], one["Value"]) for one in content["Headers"]),
        "files": files(simple_file, content.pop("Attachments", [])),
    }


def simple_file(one):
    id = one.pop("ContentId", None)
    if one.pop("ContentDisposition") != ("INLINE" if id else "ATTACHMENT"):
        raise ValueError("a file with an id is inline")
    if one.pop("ContentTransferEncoding") != "BASE64":
        raise ValueError("not in base64")
    names = {"FileName": "name", "ContentType": "type", "RawContent": "content"}
    return file(id=id, **{names.get(name, name): value for name, value in one.items()})


def raw(content):
    message = email.message_from_bytes(base64.b64decode(content["Data"]), policy=email.policy.default)
    headers = {}
    for name, value in message.items():
        name = name.lower()
        if name not in MIME_HEADERS_LEFT_OUT:
            headers[name] = "*" if name in ("date", "message-id") else str(value)
    body = lambda kind: message.get_body((kind,))
    texts = {name: body(kind) and body(kind).get_content() for name, kind in (("text", "plain"), ("html", "html"))}
    return {
        "from": headers.pop("from"),
        "to": recipients([headers.pop("to", "")]),
        "cc": recipients([headers.pop("cc", "")]),
        "reply_to": recipients([headers.pop("reply-to", "")]),
        "subject": headers.pop("subject"),
        **texts,
        "headers": headers,
        "files": files(raw_file, [part for part in message.walk() if part.get_content_disposition()]),
    }


def raw_file(part):
    content = base64.b64encode(part.get_payload(decode=True)).decode()
    return file(part.get_filename(), str(part["Content-Type"]), content, (part["Content-ID"] or "").strip("<>"))


OF = {"ses": ses, "sendgrid": sendgrid, "postmark": postmark, "resend": resend, "mailgun": mailgun}
