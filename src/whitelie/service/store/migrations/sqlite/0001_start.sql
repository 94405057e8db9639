CREATE TABLE epochs (number INTEGER PRIMARY KEY AUTOINCREMENT) STRICT;

CREATE TABLE experiments (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    slug TEXT NOT NULL UNIQUE,
    definition TEXT NOT NULL
) STRICT;

CREATE TABLE keys (
    number INTEGER PRIMARY KEY,
    hash BLOB NOT NULL UNIQUE,
    name TEXT NOT NULL,
    role TEXT NOT NULL,
    origins TEXT NOT NULL,
    decisions_per_minute INTEGER NOT NULL,
    expiry INTEGER
) STRICT;

-- The arms of one minute lie side by side, so that a commit touches few pages.
CREATE TABLE counts (
    experiment INTEGER NOT NULL,
    minute INTEGER NOT NULL,
    arm INTEGER NOT NULL,
    issued INTEGER NOT NULL CHECK (issued >= 0),
    answered INTEGER NOT NULL,
    ones INTEGER NOT NULL CHECK (ones BETWEEN 0 AND answered),
    PRIMARY KEY (experiment, minute, arm)
) STRICT, WITHOUT ROWID;

-- With rowid: a kilobyte of bits would not fit into a page of the other kind.
CREATE TABLE spent (
    epoch INTEGER NOT NULL,
    block INTEGER NOT NULL,
    expiry INTEGER NOT NULL,
    bits BLOB NOT NULL CHECK (length(bits) = 1024),
    PRIMARY KEY (epoch, block)
) STRICT;

-- One row. `writer` names the process that has spent bits last: it alone may trust its memory.
CREATE TABLE state (
    generation INTEGER NOT NULL,
    writer INTEGER NOT NULL,
    probes INTEGER NOT NULL
) STRICT;
INSERT INTO state VALUES (0, 0, 0);

CREATE TRIGGER experiment_saved AFTER INSERT ON experiments
BEGIN UPDATE state SET generation = generation + 1; END;
CREATE TRIGGER experiment_changed AFTER UPDATE ON experiments
BEGIN UPDATE state SET generation = generation + 1; END;
CREATE TRIGGER experiment_deleted AFTER DELETE ON experiments
BEGIN UPDATE state SET generation = generation + 1; END;
CREATE TRIGGER key_saved AFTER INSERT ON keys
BEGIN UPDATE state SET generation = generation + 1; END;
CREATE TRIGGER key_changed AFTER UPDATE ON keys
BEGIN UPDATE state SET generation = generation + 1; END;
CREATE TRIGGER key_deleted AFTER DELETE ON keys
BEGIN UPDATE state SET generation = generation + 1; END;

-- What is inserted here becomes durable in one statement, which is one transaction.
-- counts: [[experiment, arm, minute, issued, answered, ones], …], to be added;
-- blocks: [[epoch, block, expiry], …], whose new bits follow each other in `bits`.
CREATE VIEW batch AS SELECT 0 AS writer, '' AS counts, '' AS blocks, x'' AS bits;
CREATE TRIGGER batch_committed INSTEAD OF INSERT ON batch
BEGIN
    SELECT RAISE(ABORT, 'another process has spent bits') FROM state WHERE writer <> NEW.writer;
    INSERT INTO spent (epoch, block, expiry, bits)
        SELECT value ->> 0, value ->> 1, value ->> 2, substr(NEW.bits, 1 + 1024 * key, 1024)
        FROM json_each(NEW.blocks) WHERE true
        ON CONFLICT (epoch, block) DO UPDATE
        SET expiry = max(expiry, excluded.expiry), bits = excluded.bits;
    INSERT INTO counts (experiment, arm, minute, issued, answered, ones)
        SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 4, value ->> 5
        FROM json_each(NEW.counts) WHERE true
        ON CONFLICT (experiment, minute, arm) DO UPDATE
        SET issued = issued + excluded.issued, answered = answered + excluded.answered,
            ones = ones + excluded.ones;
END;
