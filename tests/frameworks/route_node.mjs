// Serves the routes of a page of docs/guides, which are in route.mjs beside this file. Argument and output are those
// of route_django.py.

import express from "express";
import pg from "pg";
import route from "./route.mjs";

const app = express();
route(app, express, new pg.Pool({ host: process.argv[2], database: "app", user: "web", max: 1 }));
const server = app.listen(0, "127.0.0.1", () => console.log(`port ${server.address().port}`));
