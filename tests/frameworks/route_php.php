<?php
// Serves the route of docs/guides/events.md, which is the file of MAILROOM_ROUTE, under PHP's own server.

$db = new PDO('pgsql:host=' . getenv('MAILROOM_SOCKET') . ';dbname=app;user=web');
require getenv('MAILROOM_ROUTE');
