"""Asks the verifier of standardwebhooks about requests: one true or false for each."""

import json
import sys

from standardwebhooks.webhooks import Webhook, WebhookVerificationError


def accepts(webhook, request):
    try:
        webhook.verify(request["body"], request["headers"])
        return True
    except WebhookVerificationError:
        return False


question = json.load(sys.stdin)
webhook = Webhook(question["secret"])
json.dump([accepts(webhook, request) for request in question["requests"]], sys.stdout)
