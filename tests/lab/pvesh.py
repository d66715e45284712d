#!/usr/bin/env python3
"""Stands in for `pvesh` of a Proxmox VE host: calls the embedded one's API as root with the arguments of the command line.

It prints the data of the response, and fails as the real one does: with the error message on standard error, and 255."""

import json
import os
import ssl
import sys
import urllib.error
import urllib.parse
import urllib.request

folder = os.path.dirname(os.path.abspath(__file__))
address, token_id = open(f"{folder}/pvesh.where").read().split()
secret = open(f"{folder}/admin-token").read().strip()
with open(f"{folder}/pvesh.log", "a") as log:
    log.write(" ".join(sys.argv[1:]) + "\n")

verb, path, *rest = sys.argv[1:]
parameters = {rest[at].removeprefix("--"): rest[at + 1] for at in range(0, len(rest), 2)}
assert parameters.pop("output-format") == "json"
method = {"get": "GET", "create": "POST", "set": "PUT", "delete": "DELETE"}[verb]
url = f"https://{address}/api2/json{urllib.parse.quote(path)}"
encoded = urllib.parse.urlencode(parameters)
if method in ("GET", "DELETE"):
    url, body = (f"{url}?{encoded}" if encoded else url), None
else:
    body = encoded.encode()
headers = {"Authorization": f"PVEAPIToken={token_id}={secret}"}
request = urllib.request.Request(url, data=body, headers=headers, method=method)
opener = urllib.request.build_opener(
    urllib.request.ProxyHandler({}),
    urllib.request.HTTPSHandler(context=ssl.create_default_context(cafile=f"{folder}/ca.pem")),
)
try:
    with opener.open(request, timeout=30) as answer:
        data = json.load(answer).get("data")
except urllib.error.HTTPError as error:
    print(json.loads(error.read() or b"{}").get("message", error.reason).strip(), file=sys.stderr)
    sys.exit(255)
if data is not None:
    print(json.dumps(data))
