"use strict";

// Settee's databases in this process. Types and documentation are in index.d.ts.

const { SetteeError } = require("./lib/errors.js");
const { open, Directory } = require("./lib/directory.js");
const { Database } = require("./lib/database.js");
const ids = require("./lib/ids.js");
const { Rows, Changes } = require("./lib/rows.js");
const { version } = require("./settee.node");

module.exports = { open, ids, Directory, Database, Rows, Changes, SetteeError, version: version() };
