-- The tables of a state file of schema 2, as the last version with that schema made them.
PRAGMA application_id = 1869768548;

CREATE TABLE state (
    one            INTEGER PRIMARY KEY CHECK (one = 1),
    schema_version INTEGER NOT NULL,
    oldest_reader  INTEGER NOT NULL,
    base_url       TEXT NOT NULL,
    organization   TEXT,
    instance_id    TEXT NOT NULL,
    filters        TEXT NOT NULL,
    born_at        INTEGER,
    start_floor    INTEGER,
    count_floor    INTEGER,
    filter_floor   INTEGER,
    prune_floor    INTEGER,
    cursor         TEXT,
    frontier_at    INTEGER,
    frontier_id    INTEGER,
    newest_at      INTEGER,
    reread_at      INTEGER,
    recreated_at   INTEGER,
    walk           TEXT,
    walk_direction TEXT,
    walk_floor     INTEGER,
    walk_joined    INTEGER NOT NULL DEFAULT 0,
    walk_started   INTEGER,
    walk_top       BLOB
) STRICT;

CREATE TABLE seen (
    created INTEGER NOT NULL,
    id      INTEGER NOT NULL,
    PRIMARY KEY (created, id)
) STRICT, WITHOUT ROWID;

CREATE TABLE walk_marks (
    depth  INTEGER PRIMARY KEY,
    before TEXT,
    ends   TEXT,
    bottom INTEGER NOT NULL
) STRICT;

CREATE TABLE events (
    scheme        TEXT NOT NULL,
    activity_type TEXT NOT NULL,
    actor         TEXT NOT NULL,
    count         INTEGER NOT NULL,
    PRIMARY KEY (scheme, activity_type, actor)
) STRICT, WITHOUT ROWID;

CREATE TABLE actors (
    scheme  TEXT NOT NULL,
    actor   TEXT NOT NULL,
    name    TEXT,
    last_at INTEGER NOT NULL,
    PRIMARY KEY (scheme, actor)
) STRICT, WITHOUT ROWID;

CREATE TABLE totals (
    name  TEXT PRIMARY KEY,
    value INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE outbox (
    page         INTEGER PRIMARY KEY AUTOINCREMENT,
    arrived      INTEGER NOT NULL,
    records      INTEGER NOT NULL,
    acknowledged INTEGER NOT NULL DEFAULT 0,
    trace        BLOB,
    block        BLOB NOT NULL
) STRICT;

CREATE TABLE dead_letters (
    id      INTEGER PRIMARY KEY AUTOINCREMENT,
    at      INTEGER NOT NULL,
    arrived INTEGER NOT NULL,
    reason  TEXT NOT NULL,
    message TEXT NOT NULL,
    kind    INTEGER NOT NULL,
    raw     TEXT NOT NULL
) STRICT;

CREATE TABLE shown (
    scheme TEXT NOT NULL,
    name   TEXT NOT NULL,
    actor  TEXT NOT NULL,
    value  INTEGER NOT NULL,
    at     INTEGER NOT NULL,
    PRIMARY KEY (scheme, name, actor)
) STRICT, WITHOUT ROWID;

ALTER TABLE dead_letters ADD COLUMN queued INTEGER NOT NULL DEFAULT 0;

