-- What others than admins see moves in steps of several reports. A row of `steps` was shown at once,
-- in `minute`; `shown` has their sums, the minute of the latest, and what is held back.
CREATE TABLE steps (
    experiment INTEGER NOT NULL,
    minute INTEGER NOT NULL,
    arm INTEGER NOT NULL,
    answered INTEGER NOT NULL,
    ones INTEGER NOT NULL CHECK (ones BETWEEN 0 AND answered),
    PRIMARY KEY (experiment, minute, arm)
) STRICT, WITHOUT ROWID;
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

-- What was counted before is shown: a day with ten reports of an arm or more as a step of its own, the
-- other days together, or with the last day if they have fewer than ten. Fewer in all are held.
INSERT INTO steps
    SELECT experiment,
        CASE WHEN answered >= 10 THEN day WHEN few >= 10 THEN last_few ELSE last_many END AS minute,
        arm, sum(answered), sum(ones)
    FROM (
        SELECT *, sum(answered) FILTER (WHERE answered < 10) OVER arms AS few,
            max(day) FILTER (WHERE answered < 10) OVER arms AS last_few,
            max(day) FILTER (WHERE answered >= 10) OVER arms AS last_many
        FROM (
            SELECT experiment, minute - minute % 1440 AS day, arm, sum(answered) AS answered,
                sum(ones) AS ones
            FROM counts GROUP BY 1, 2, 3 HAVING sum(answered) > 0
        )
        WINDOW arms AS (PARTITION BY experiment, arm)
    )
    WHERE answered >= 10 OR few >= 10 OR last_many IS NOT NULL
    GROUP BY 1, 2, 3;
INSERT INTO shown
    SELECT experiment, arm, sum(shown_answered), sum(shown_ones), max(minute),
        sum(answered) - sum(shown_answered), sum(ones) - sum(shown_ones)
    FROM (
        SELECT experiment, arm, answered, ones, 0 AS shown_answered, 0 AS shown_ones, 0 AS minute
        FROM counts
        UNION ALL SELECT experiment, arm, 0, 0, answered, ones, minute FROM steps
    )
    GROUP BY experiment, arm HAVING sum(answered) > 0;

-- A commit names its minute, and in `held` the reports that it accepts:
-- [[experiment, arm, answered, ones, step or null], …].
DROP TRIGGER batch_committed;
DROP VIEW batch;
CREATE VIEW batch AS
    SELECT 0 AS writer, 0 AS generation, 0 AS minute, '' AS counts, '' AS held, '' AS blocks,
        x'' AS bits;
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
        FROM json_each(NEW.held) CROSS JOIN shown ON experiment = value ->> 0 AND arm = value ->> 1
        WHERE held_answered >= value ->> 4 AND held_ones NOT BETWEEN 0 AND held_answered);
    UPDATE shown
        SET answered = 0, ones = 0, minute = 0,
            held_answered = answered + held_answered, held_ones = ones + held_ones
        FROM json_each(NEW.held)
        WHERE experiment = value ->> 0 AND arm = value ->> 1
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

-- The hash of the Idempotency-Key that created an experiment creates no other.
ALTER TABLE experiments ADD COLUMN key_hash TEXT;
UPDATE experiments SET key_hash = substr(definition ->> '$.creation', 1, 64)
    WHERE json_valid(definition) AND number IN (
        SELECT min(number) FROM experiments WHERE json_valid(definition)
        GROUP BY substr(definition ->> '$.creation', 1, 64)
    );
CREATE UNIQUE INDEX experiments_key_hash ON experiments (key_hash);
