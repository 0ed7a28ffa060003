"""The HTTP requests that django-anymail makes of mails: they are caught before they are sent."""

import base64
import warnings
from email.encoders import encode_base64
from email.mime.base import MIMEBase

import django
import requests
from anymail.exceptions import AnymailNotSupportedWarning
from django.conf import settings
from django.core.mail import EmailMultiAlternatives, get_connection

KEY = "hunter2"

settings.configure(
    ANYMAIL={
        # Of Resend and SES: they have no tracking by message, or anymail does not know it.
        "IGNORE_UNSUPPORTED_FEATURES": True,
        "AMAZON_SES_CLIENT_PARAMS": {
            "region_name": "us-east-1",
            "aws_access_key_id": "AKIDEXAMPLE",
            "aws_secret_access_key": KEY,
        },
        "AMAZON_SES_MESSAGE_TAG_NAME": "kind",
        "MAILGUN_API_KEY": KEY,
        "POSTMARK_SERVER_TOKEN": KEY,
        "RESEND_API_KEY": KEY,
        "SENDGRID_API_KEY": KEY,
        # Its own id, which is random.
        "SENDGRID_GENERATE_MESSAGE_ID": False,
    }
)
django.setup()
# Of SendGrid, whose API anymail's authors cannot test against any more.
warnings.simplefilter("ignore", AnymailNotSupportedWarning)


class Caught(Exception):
    """Thrown in place of sending."""

    def __init__(self, request):
        self.request = request


def catch(request, **_):
    raise Caught(request)


requests.Session.send = lambda _, request, **__: catch(request)


def text_of(body):
    return body.decode() if isinstance(body, bytes) else body


def bytes_of(body):
    return body.encode() if isinstance(body, str) else body


def file_of(file):
    """A part with this file."""
    media, *parameters = file["type"].split("; ")
    part = MIMEBase(*media.split("/"), **dict(parameter.split("=") for parameter in parameters))
    part.set_payload(base64.b64decode(file["content"]))
    encode_base64(part)
    part.add_header("Content-Disposition", "inline" if file["id"] else "attachment", filename=file["name"])
    if file["id"]:
        part["Content-ID"] = f"<{file['id']}>"
    return part


def of(provider, mail):
    """The request that anymail makes of this mail for this provider."""
    backend = {"ses": "amazon_ses"}.get(provider, provider)
    html_alone = mail["text"] is None
    message = EmailMultiAlternatives(
        subject=mail["subject"],
        body=mail["html"] if html_alone else mail["text"],
        from_email=mail["from"],
        to=mail["to"],
        cc=mail["cc"],
        bcc=mail["bcc"],
        reply_to=mail["reply_to"],
        headers=mail["headers"],
    )
    if html_alone:
        message.content_subtype = "html"
    elif mail["html"] is not None:
        message.attach_alternative(mail["html"], "text/html")
    for file in mail["files"]:
        message.attach(file_of(file))
    message.tags = mail["tags"]
    message.metadata = mail["metadata"]
    message.track_clicks = False
    message.track_opens = False
    connection = get_connection(f"anymail.backends.{backend}.EmailBackend")
    if provider == "ses":
        # What anymail has no name for; botocore refuses what SES does not know.
        off = {"ClickTrackingEnabled": "DISABLED", "OpenTrackingEnabled": "DISABLED"}
        message.esp_extra = {"ConfigurationOverrides": {"Tracking": off}}
        connection.open()
        connection.client.meta.events.register("before-send.sesv2.SendEmail", catch)
    try:
        connection.send_messages([message])
    except Caught as caught:
        request = caught.request
        headers = {name: text_of(value) for name, value in request.headers.items()}
        return {
            "method": request.method,
            "url": request.url,
            "headers": headers,
            "body": base64.b64encode(bytes_of(request.body)).decode(),
        }
    raise RuntimeError(f"anymail made no request for {provider}")
