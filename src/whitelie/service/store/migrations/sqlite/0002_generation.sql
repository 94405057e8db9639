-- A commit names the generation of experiments and keys that its makers know, or NULL.
-- Its rows of counts are now [experiment, minute, arm, issued, answered, ones], as in the table.
DROP TRIGGER batch_committed;
DROP VIEW batch;
CREATE VIEW batch AS
    SELECT 0 AS writer, 0 AS generation, '' AS counts, '' AS blocks, x'' AS bits;
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
END;
