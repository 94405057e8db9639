PRAGMA application_id = 2003331444;
PRAGMA user_version = 4;
BEGIN TRANSACTION;
CREATE TABLE counts (
    experiment INTEGER NOT NULL,
    minute INTEGER NOT NULL,
    arm INTEGER NOT NULL,
    issued INTEGER NOT NULL CHECK (issued >= 0),
    answered INTEGER NOT NULL,
    ones INTEGER NOT NULL CHECK (ones BETWEEN 0 AND answered),
    PRIMARY KEY (experiment, minute, arm)
) STRICT, WITHOUT ROWID;
INSERT INTO "counts" VALUES(1,30000000,0,14,10,9);
INSERT INTO "counts" VALUES(1,30000000,1,12,8,5);
INSERT INTO "counts" VALUES(1,30000000,2,14,12,6);
INSERT INTO "counts" VALUES(1,30000006,0,4,0,0);
INSERT INTO "counts" VALUES(1,30000006,3,1,0,0);
INSERT INTO "counts" VALUES(1,30000018,1,1,0,0);
INSERT INTO "counts" VALUES(2,30000001,0,31,23,17);
INSERT INTO "counts" VALUES(2,30000001,1,9,7,3);
INSERT INTO "counts" VALUES(3,30000006,0,2,1,1);
INSERT INTO "counts" VALUES(3,30000006,1,3,2,2);
INSERT INTO "counts" VALUES(4,30000003,0,15,11,8);
INSERT INTO "counts" VALUES(4,30000003,1,25,19,12);
CREATE TABLE epochs (number INTEGER PRIMARY KEY AUTOINCREMENT) STRICT;
INSERT INTO "epochs" VALUES(1);
CREATE TABLE experiments (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    slug TEXT NOT NULL UNIQUE,
    definition TEXT NOT NULL
, key_hash TEXT) STRICT;
INSERT INTO "experiments" VALUES(1,'thompson','{"name":"thompson","arms":[{"key":"plain","p00":0.7310585786300048,"p11":0.7310585786300048,"payload":{"text":"Grüß"},"retired":false},{"key":"kind","p00":0.7310585786300048,"p11":0.7310585786300048,"payload":null,"retired":false},{"key":"gone","p00":0.7310585786300048,"p11":0.7310585786300048,"payload":null,"retired":true},{"key":"late","p00":0.6791786991753929,"p11":0.6791786991753929,"payload":null,"retired":false}],"policy":{"name":"TS","feedback":"corrected"},"window":600,"spread":60,"feedback_ttl":605460,"floor":0.0,"retention":7776000,"created":30000000,"p00":0.7310585786300048,"p11":0.7310585786300048,"status":"running","rolled_back":[],"step":5,"creation":"bc743b082cfaf67690489530ed174fe821e65492aaa4946e9d3d6feb01daaad0 943795c1bd04559464e8f73c5ebfa7466db20b96af471e1c2dcf3bd346e052bc","sending":"next-visit"}','bc743b082cfaf67690489530ed174fe821e65492aaa4946e9d3d6feb01daaad0');
INSERT INTO "experiments" VALUES(2,'paused','{"name":"paused","arms":[{"key":"a","p00":0.6224593312018545,"p11":0.6224593312018545,"payload":null,"retired":false},{"key":"b","p00":0.25,"p11":0.125,"payload":null,"retired":false}],"policy":{"name":"KLUCB","feedback":"corrected","c":0.0,"domain":"unit"},"window":600,"spread":60,"feedback_ttl":605460,"floor":0.25,"retention":7776000,"created":30000001,"p00":null,"p11":null,"status":"paused","rolled_back":[],"step":10,"creation":null,"sending":"next-visit"}',NULL);
INSERT INTO "experiments" VALUES(3,'rolled-back','{"name":"rolled-back","arms":[{"key":"a","p00":0.75,"p11":0.875,"payload":null,"retired":false},{"key":"b","p00":0.75,"p11":0.875,"payload":null,"retired":false}],"policy":{"name":"UCB1","feedback":"wrapped"},"window":600,"spread":60,"feedback_ttl":605460,"floor":0.0,"retention":7776000,"created":30000002,"p00":0.75,"p11":0.875,"status":"running","rolled_back":[[30000000,30000006]],"step":10,"creation":null,"sending":"when-due"}',NULL);
INSERT INTO "experiments" VALUES(4,'stopped','{"name":"stopped","arms":[{"key":"a","p00":0.8807970779778824,"p11":0.8807970779778824,"payload":null,"retired":false},{"key":"b","p00":0.8807970779778824,"p11":0.8807970779778824,"payload":null,"retired":false}],"policy":{"name":"UCB","feedback":"corrected","c":3},"window":600,"spread":60,"feedback_ttl":605460,"floor":0.0,"retention":7776000,"created":30000003,"p00":0.8807970779778824,"p11":0.8807970779778824,"status":"stopped","rolled_back":[],"step":10,"creation":null,"sending":"next-visit"}',NULL);
CREATE TABLE keys (
    number INTEGER PRIMARY KEY,
    hash BLOB NOT NULL UNIQUE,
    name TEXT NOT NULL,
    role TEXT NOT NULL,
    origins TEXT NOT NULL,
    decisions_per_minute INTEGER NOT NULL,
    expiry INTEGER
) STRICT;
INSERT INTO "keys" VALUES(1,X'F303E659BADFC51C6F193C5A60A22294F479A5C66D629184CAB3F9AC0BCFF9FE','admin','admin','[]',6000,NULL);
INSERT INTO "keys" VALUES(2,X'EACF7DD9EE1717971932191FA836B9E161E01D58C4F23450D3E51904D78F3E5F','reader','reader','[]',6000,NULL);
INSERT INTO "keys" VALUES(3,X'5B632DAB990FAAB8FFB338FA08B3623FDFAA781EBB792C56239E07395F0AD70A','publishable','publishable','["https://shop.example", "https://\u00fc.example"]',6000,NULL);
INSERT INTO "keys" VALUES(4,X'EF356C9140FF517614B7E1D3F75F344E9096509044618D74B476EBBE73BCF83E','old','reader','[]',0,29999999);
CREATE TABLE shown (
    experiment INTEGER NOT NULL,
    arm INTEGER NOT NULL,
    answered INTEGER NOT NULL,
    ones INTEGER NOT NULL CHECK (ones BETWEEN 0 AND answered),
    minute INTEGER NOT NULL,
    held_answered INTEGER NOT NULL,
    held_ones INTEGER NOT NULL,
    PRIMARY KEY (experiment, arm)
) STRICT, WITHOUT ROWID;
INSERT INTO "shown" VALUES(1,0,10,9,30000001,0,0);
INSERT INTO "shown" VALUES(1,1,8,5,30000001,0,0);
INSERT INTO "shown" VALUES(1,2,12,6,30000001,0,0);
INSERT INTO "shown" VALUES(2,0,23,17,30000002,0,0);
INSERT INTO "shown" VALUES(2,1,0,0,0,7,3);
INSERT INTO "shown" VALUES(3,0,0,0,0,1,1);
INSERT INTO "shown" VALUES(3,1,0,0,0,2,2);
INSERT INTO "shown" VALUES(4,0,11,8,30000004,0,0);
INSERT INTO "shown" VALUES(4,1,19,12,30000004,0,0);
CREATE TABLE spent (
    epoch INTEGER NOT NULL,
    block INTEGER NOT NULL,
    expiry INTEGER NOT NULL,
    bits BLOB NOT NULL CHECK (length(bits) = 1024),
    PRIMARY KEY (epoch, block)
) STRICT;
INSERT INTO "spent" VALUES(1,0,30010097,X'FFFFFF3F00FFFFFF3F00FFFFFF3F00FFFFFF3F00FFFFFF3F00070000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000');
CREATE TABLE state (
    generation INTEGER NOT NULL,
    writer INTEGER NOT NULL,
    probes INTEGER NOT NULL
, has_rolled_back INTEGER NOT NULL DEFAULT 0) STRICT;
INSERT INTO "state" VALUES(14,1869262261768902302,0,1);
CREATE TABLE steps (
    experiment INTEGER NOT NULL,
    minute INTEGER NOT NULL,
    arm INTEGER NOT NULL,
    answered INTEGER NOT NULL,
    ones INTEGER NOT NULL CHECK (ones BETWEEN 0 AND answered),
    PRIMARY KEY (experiment, minute, arm)
) STRICT, WITHOUT ROWID;
INSERT INTO "steps" VALUES(1,30000001,0,10,9);
INSERT INTO "steps" VALUES(1,30000001,1,8,5);
INSERT INTO "steps" VALUES(1,30000001,2,12,6);
INSERT INTO "steps" VALUES(2,30000002,0,23,17);
INSERT INTO "steps" VALUES(4,30000004,0,11,8);
INSERT INTO "steps" VALUES(4,30000004,1,19,12);
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
CREATE VIEW batch AS
    SELECT 0 AS writer, 0 AS generation, 0 AS minute, '' AS counts, '' AS held, '' AS blocks,
        x'' AS bits;
CREATE UNIQUE INDEX experiments_key_hash ON experiments (key_hash);
CREATE TRIGGER batch_committed INSTEAD OF INSERT ON batch
BEGIN
    SELECT RAISE(ABORT, 'stale') FROM state WHERE generation <> NEW.generation;
    SELECT RAISE(ABORT, 'another process has spent bits') FROM state WHERE writer <> NEW.writer;
    INSERT INTO spent (epoch, block, expiry, bits)
        SELECT value ->> 0, value ->> 1, value ->> 2, substr(NEW.bits, 1 + 1024 * key, 1024)
        FROM json_each(NEW.blocks) WHERE true
        ON CONFLICT (epoch, block) DO UPDATE
        SET expiry = max(expiry, excluded.expiry), bits = excluded.bits;
    INSERT INTO counts (experiment, minute, arm, issued, answered, ones)
        SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 4, value ->> 5
        FROM json_each(NEW.counts) WHERE true
        ON CONFLICT (experiment, minute, arm) DO UPDATE
        SET issued = issued + excluded.issued, answered = answered + excluded.answered,
            ones = ones + excluded.ones;
    INSERT INTO shown (experiment, arm, answered, ones, minute, held_answered, held_ones)
        SELECT value ->> 0, value ->> 1, 0, 0, 0, value ->> 2, value ->> 3
        FROM json_each(NEW.held) WHERE true
        ON CONFLICT (experiment, arm) DO UPDATE
        SET held_answered = held_answered + excluded.held_answered,
            held_ones = held_ones + excluded.held_ones;
    -- After a rollback what is held may be no step by itself: then all of the arm is held, and makes one.
    DELETE FROM steps WHERE (experiment, arm) IN (
        SELECT experiment, arm
        FROM state CROSS JOIN json_each(NEW.held)
            CROSS JOIN shown ON experiment = value ->> 0 AND arm = value ->> 1
        WHERE has_rolled_back AND held_answered >= value ->> 4 AND held_ones NOT BETWEEN 0 AND held_answered);
    UPDATE shown
        SET answered = 0, ones = 0, minute = 0,
            held_answered = answered + held_answered, held_ones = ones + held_ones
        FROM json_each(NEW.held)
        WHERE (SELECT has_rolled_back FROM state) AND experiment = value ->> 0 AND arm = value ->> 1
            AND held_answered >= value ->> 4 AND held_ones NOT BETWEEN 0 AND held_answered;
    INSERT INTO steps (experiment, minute, arm, answered, ones)
        SELECT experiment, NEW.minute, arm, held_answered, held_ones
        FROM json_each(NEW.held) CROSS JOIN shown ON experiment = value ->> 0 AND arm = value ->> 1
        WHERE held_answered >= value ->> 4
        ON CONFLICT (experiment, minute, arm) DO UPDATE
        SET answered = answered + excluded.answered, ones = ones + excluded.ones;
    UPDATE shown
        SET answered = answered + held_answered, ones = ones + held_ones,
            minute = max(minute, NEW.minute), held_answered = 0, held_ones = 0
        FROM json_each(NEW.held)
        WHERE experiment = value ->> 0 AND arm = value ->> 1 AND held_answered >= value ->> 4;
END;
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('epochs',1);
INSERT INTO "sqlite_sequence" VALUES('experiments',5);
COMMIT;
