"""Makes calls with psycopg, as a program of Python would: CALLS on the input, what came of them on the output.

    with_psycopg.py SOCKET DATABASE
"""

import datetime
import json
import sys
import uuid

import psycopg
from psycopg.types.json import Jsonb


def plain(value):
    match value:
        case {"json": document}:
            return Jsonb(document)
        case {"time": text}:
            return datetime.datetime.fromisoformat(text)
        case {"uuid": text}:
            return uuid.UUID(text)
        case {"bytes": text}:
            return bytes.fromhex(text)
    return value


socket, database = sys.argv[1:]
results = []
with psycopg.connect(host=socket, dbname=database, user="postgres", autocommit=True) as connection:
    cursor = psycopg.RawCursor(connection)
    for call in json.load(sys.stdin):
        try:
            row = cursor.execute(call["sql"], [plain(value) for value in call["parameters"]]).fetchone()
            results.append(row and row[0])
        except psycopg.Error as error:
            results.append(f"{error.sqlstate} {error}")
json.dump(results, sys.stdout)
