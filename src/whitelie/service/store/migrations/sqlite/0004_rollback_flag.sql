-- Only a rollback makes the held reports of an arm fewer than none: a store that never had one need not
-- look for it at every commit.
ALTER TABLE state ADD COLUMN has_rolled_back INTEGER NOT NULL DEFAULT 0;
UPDATE state SET has_rolled_back = EXISTS (
    SELECT 1 FROM shown WHERE held_ones NOT BETWEEN 0 AND held_answered);
DROP TRIGGER batch_committed;
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
