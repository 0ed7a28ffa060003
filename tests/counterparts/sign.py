"""Has botocore sign a request that was signed already, with the same keys, headers and time."""

import json
import sys

from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

question = json.load(sys.stdin)
headers = question["headers"]
_, signed = headers["authorization"].split("SignedHeaders=")
signed = signed.split(",")[0].split(";")
host = headers["host"]
request = AWSRequest(
    method="POST",
    url=f"http://{host}{question['url']}",
    headers={name: headers[name] for name in signed},
    data=question["body"].encode(),
)
request.context["timestamp"] = headers["x-amz-date"]
keys = Credentials(question["access_key"], question["secret_key"])
signer = SigV4Auth(keys, "ses", question["region"])
canonical = signer.canonical_request(request)
signature = signer.signature(signer.string_to_sign(request, canonical), request)
signer._inject_signature_to_request(request, signature)
json.dump(request.headers["Authorization"], sys.stdout)
