-- The order of locks is that of whoever changes definitions: this cannot deadlock with their commits.
SELECT pg_advisory_xact_lock(2003331444, 1);
SELECT pg_advisory_xact_lock(2003331444, 3);
LOCK TABLE counts, totals IN ACCESS EXCLUSIVE MODE;

-- What others than admins see moves in steps of several reports. A row of `steps` was shown at once,
-- in `minute`; `totals` have their sums and the minute of the latest. What is held back is the rest.
CREATE TABLE steps (
    experiment bigint NOT NULL,
    minute bigint NOT NULL,
    arm bigint NOT NULL,
    answered bigint NOT NULL,
    ones bigint NOT NULL CHECK (ones BETWEEN 0 AND answered),
    PRIMARY KEY (experiment, minute, arm)
) WITH (fillfactor = 50);
ALTER TABLE totals ADD COLUMN shown_answered bigint NOT NULL DEFAULT 0,
    ADD COLUMN shown_ones bigint NOT NULL DEFAULT 0,
    ADD COLUMN shown_minute bigint NOT NULL DEFAULT 0;

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
        ) AS days
        WINDOW arms AS (PARTITION BY experiment, arm)
    ) AS placed
    WHERE answered >= 10 OR few >= 10 OR last_many IS NOT NULL
    GROUP BY 1, 2, 3;
UPDATE totals AS t
    SET shown_answered = s.answered, shown_ones = s.ones, shown_minute = s.minute
    FROM (
        SELECT experiment, arm, sum(answered) AS answered, sum(ones) AS ones, max(minute) AS minute
        FROM steps GROUP BY experiment, arm
    ) AS s
    WHERE t.experiment = s.experiment AND t.arm = s.arm;

-- As `commit_batch`, and with the minute of the commit and the step of each place's experiment, by
-- which reports are shown; where that is NULL they stay held.
CREATE FUNCTION commit_in_steps(
    my_epoch bigint, my_write bigint, known bigint, my_minute bigint,
    place_experiment bigint[], place_minute bigint[], place_arm bigint[],
    more_issued bigint[], more_answered bigint[], more_ones bigint[], place_step bigint[],
    block_epoch bigint[], block_number bigint[], block_expiry bigint[], block_mask text[]
) RETURNS TABLE (epoch bigint, block bigint, bits text) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    updated bigint;
BEGIN
    IF known IS NOT NULL THEN
        PERFORM pg_advisory_xact_lock_shared(2003331444, 1);
        IF known <> (SELECT generation FROM state) THEN
            RETURN QUERY SELECT NULL::bigint, NULL::bigint, NULL::text;
            RETURN;
        END IF;
    END IF;
    IF cardinality(block_epoch) > 0 THEN
        INSERT INTO spent (epoch, block, expiry, bits)
            SELECT e, b, x, repeat('0', 8192)::bit(8192)
            FROM unnest(block_epoch, block_number, block_expiry) AS wanted (e, b, x)
            ORDER BY e, b
            ON CONFLICT DO NOTHING;
        -- A statement of its own: a condition beside it would leave rows unlocked.
        PERFORM FROM spent AS s JOIN unnest(block_epoch, block_number) AS wanted (e, b)
            ON s.epoch = e AND s.block = b
            ORDER BY s.epoch, s.block
            FOR UPDATE OF s;
        RETURN QUERY
            SELECT s.epoch, s.block, s.bits::text
            FROM spent AS s JOIN unnest(block_epoch, block_number, block_mask) AS wanted (e, b, m)
                ON s.epoch = e AND s.block = b
            WHERE bit_count(s.bits & ('x' || m)::bit(8192)) > 0;
        IF FOUND THEN
            RETURN;
        END IF;
        UPDATE spent AS s SET bits = s.bits | ('x' || m)::bit(8192), expiry = greatest(s.expiry, x)
            FROM unnest(block_epoch, block_number, block_expiry, block_mask) AS w (e, b, x, m)
            WHERE s.epoch = e AND s.block = b;
        GET DIAGNOSTICS updated = ROW_COUNT;
        IF updated < cardinality(block_epoch) THEN  -- an expired block was dropped meanwhile
            RAISE EXCEPTION 'a block is gone; try again' USING ERRCODE = 'serialization_failure';
        END IF;
    END IF;
    PERFORM number_write(my_epoch, my_write);
    INSERT INTO counts AS c (experiment, minute, arm, issued, answered, ones)
        SELECT e, m, a, i, n, o FROM unnest(
            place_experiment, place_minute, place_arm, more_issued, more_answered, more_ones
        ) AS more (e, m, a, i, n, o)
        ORDER BY e, m, a
        ON CONFLICT (experiment, minute, arm) DO UPDATE
        SET issued = c.issued + excluded.issued, answered = c.answered + excluded.answered,
            ones = c.ones + excluded.ones;
    INSERT INTO totals AS t (experiment, arm, issued, answered, ones)
        SELECT e, a, sum(i), sum(n), sum(o) FROM unnest(
            place_experiment, place_arm, more_issued, more_answered, more_ones
        ) AS more (e, a, i, n, o)
        GROUP BY e, a ORDER BY e, a
        ON CONFLICT (experiment, arm) DO UPDATE
        SET issued = t.issued + excluded.issued, answered = t.answered + excluded.answered,
            ones = t.ones + excluded.ones;
    IF cardinality(block_epoch) > 0 THEN
        -- The rows of `totals` are locked by now, so that nobody else takes these steps. After a rollback
        -- what is held may be no step by itself: then all of the arm is held, and makes one.
        UPDATE totals AS t SET shown_answered = 0, shown_ones = 0, shown_minute = 0
            FROM unnest(place_experiment, place_arm, more_answered, place_step) AS more (e, a, n, s)
            WHERE t.experiment = e AND t.arm = a AND n > 0
                AND t.answered - t.shown_answered >= s
                AND t.ones - t.shown_ones NOT BETWEEN 0 AND t.answered - t.shown_answered;
        IF FOUND THEN
            DELETE FROM steps AS s USING totals AS t
                WHERE s.experiment = t.experiment AND s.arm = t.arm AND t.shown_answered = 0
                    AND s.experiment = ANY (place_experiment);
        END IF;
        WITH taken AS (
            SELECT t.experiment, t.arm, t.answered - t.shown_answered AS answered,
                t.ones - t.shown_ones AS ones
            FROM totals AS t JOIN (
                SELECT e, a, max(s) AS step FROM unnest(
                    place_experiment, place_arm, more_answered, place_step
                ) AS more (e, a, n, s) WHERE n > 0 GROUP BY e, a
            ) AS more ON t.experiment = e AND t.arm = a
            WHERE t.answered - t.shown_answered >= step
        ), marked AS (
            UPDATE totals AS t SET shown_answered = t.answered, shown_ones = t.ones,
                shown_minute = greatest(t.shown_minute, my_minute)
            FROM taken WHERE t.experiment = taken.experiment AND t.arm = taken.arm
        )
        INSERT INTO steps AS s (experiment, minute, arm, answered, ones)
            SELECT experiment, my_minute, arm, answered, ones FROM taken
            ON CONFLICT (experiment, minute, arm) DO UPDATE
            SET answered = s.answered + excluded.answered, ones = s.ones + excluded.ones;
    END IF;
END $$;

-- Servers of the version before know no steps: what they commit stays held until others do.
CREATE OR REPLACE FUNCTION commit_batch(
    my_epoch bigint, my_write bigint, known bigint,
    place_experiment bigint[], place_minute bigint[], place_arm bigint[],
    more_issued bigint[], more_answered bigint[], more_ones bigint[],
    block_epoch bigint[], block_number bigint[], block_expiry bigint[], block_mask text[]
) RETURNS TABLE (epoch bigint, block bigint, bits text) LANGUAGE sql AS $$
    SELECT * FROM commit_in_steps(
        my_epoch, my_write, known, 0, place_experiment, place_minute, place_arm,
        more_issued, more_answered, more_ones, '{}', block_epoch, block_number, block_expiry,
        block_mask
    )
$$;

-- The hash of the Idempotency-Key that created an experiment creates no other. Definitions are looked
-- at as bytes, for not every JSON can be read here; `creation` is the last field of all so far.
ALTER TABLE experiments ADD COLUMN key_hash text UNIQUE;
UPDATE experiments AS e SET key_hash = created.key_hash
    FROM (
        SELECT min(number) AS number, key_hash FROM (
            SELECT number, substring(
                encode(definition, 'escape') FROM '"creation":"([0-9a-f]{64}) [0-9a-f]{64}"}$'
            ) AS key_hash FROM experiments
        ) AS found
        WHERE key_hash IS NOT NULL GROUP BY key_hash
    ) AS created
    WHERE e.number = created.number;
