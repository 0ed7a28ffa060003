"""Puts requests beside those that django-anymail makes of the same mails.

In: `[{provider, mail, request}]`; out: `[{ours, theirs}]`, the fields of both.
"""

import json
import sys

import fields
import intercept

json.dump(
    [
        {
            "ours": fields.of(case["provider"], case["request"]),
            "theirs": fields.of(case["provider"], intercept.of(case["provider"], case["mail"])),
        }
        for case in json.load(sys.stdin)
    ],
    sys.stdout,
)
