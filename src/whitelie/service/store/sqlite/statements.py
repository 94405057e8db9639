"""The SQL of the SQLite store. Queries return all rows as one JSON text: `store` says why.

The table `shown` has, for every arm, the sum of its published steps, and beside it what is withheld
(`held_answered`, `held_ones`).
"""

COMMIT = """
INSERT INTO batch (writer, generation, minute, counts, held, blocks, bits)
VALUES (?, ?, ?, ?, ?, ?, ?)
"""
TOTALS = """
SELECT json_group_array(json_array(arm, issued, answered, ones)) FROM (
    SELECT arm, sum(issued) AS issued, sum(answered) AS answered, sum(ones) AS ones
    FROM counts WHERE experiment = ? AND minute >= ? AND minute < ? GROUP BY arm)
"""
HISTORY = """
SELECT json_group_array(json_array(bucket, arm, issued, answered, ones)) FROM (
    SELECT minute - minute % ?4 AS bucket, arm,
        sum(issued) AS issued, sum(answered) AS answered, sum(ones) AS ones
    FROM counts WHERE experiment = ?1 AND minute >= ?2 AND minute < ?3 GROUP BY bucket, arm)
"""
PUBLISHED = """
SELECT json_group_array(json_array(arm, answered, ones, minute))
FROM shown WHERE experiment = ? AND answered > 0
"""
STEPS = """
SELECT json_group_array(json_array(bucket, arm, answered, ones, minute)) FROM (
    SELECT minute - minute % ?4 AS bucket, arm,
        sum(answered) AS answered, sum(ones) AS ones, max(minute) AS minute
    FROM steps WHERE experiment = ?1 AND minute >= ?2 AND minute < ?3 GROUP BY bucket, arm)
"""
JOIN_COUNTS = """
INSERT INTO counts
SELECT experiment, minute - minute % ?3 AS bucket, arm, sum(issued), sum(answered), sum(ones)
FROM counts WHERE experiment = ?1 AND minute < ?2 AND minute % ?3 <> 0 GROUP BY bucket, arm
ON CONFLICT (experiment, minute, arm) DO UPDATE SET issued = issued + excluded.issued,
    answered = answered + excluded.answered, ones = ones + excluded.ones
"""
JOIN_STEPS = """
INSERT INTO steps
SELECT experiment, minute - minute % ?3 AS bucket, arm, sum(answered), sum(ones)
FROM steps WHERE experiment = ?1 AND minute < ?2 AND minute % ?3 <> 0 GROUP BY bucket, arm
ON CONFLICT (experiment, minute, arm) DO UPDATE SET
    answered = answered + excluded.answered, ones = ones + excluded.ones
"""
DATE_PUBLISHED_BY_BUCKET = """
UPDATE shown SET minute = minute - minute % ?3 WHERE experiment = ?1 AND minute < ?2
"""
WITHHOLD_REMOVED = """
UPDATE shown SET held_answered = held_answered - ?, held_ones = held_ones - ?
WHERE experiment = ? AND arm = ?
"""
SET_ROLLBACK_FLAG = """
UPDATE state SET has_rolled_back = EXISTS (
    SELECT 1 FROM shown WHERE held_ones NOT BETWEEN 0 AND held_answered)
"""
_MOVED_BY_A_STEP = "experiment = :experiment AND abs(held_answered) >= :step"
_FILLS_A_STEP = "experiment = :experiment AND held_answered >= :step"
RESTATE_STEPS = (
    f"""
    DELETE FROM steps
    WHERE experiment = :experiment AND arm IN (SELECT arm FROM shown WHERE {_MOVED_BY_A_STEP})
    """,
    f"""
    UPDATE shown SET answered = 0, ones = 0, minute = 0,
        held_answered = answered + held_answered, held_ones = ones + held_ones
    WHERE {_MOVED_BY_A_STEP}
    """,
    f"""
    INSERT INTO steps SELECT experiment, :minute, arm, held_answered, held_ones
    FROM shown WHERE {_FILLS_A_STEP}
    """,
    f"""
    UPDATE shown SET answered = held_answered, ones = held_ones, minute = :minute,
        held_answered = 0, held_ones = 0
    WHERE {_FILLS_A_STEP}
    """,
)
FILL_PUBLISHED = """
INSERT INTO shown
SELECT experiment, arm, sum(shown_answered), sum(shown_ones), max(minute),
    sum(answered) - sum(shown_answered), sum(ones) - sum(shown_ones)
FROM (
    SELECT experiment, arm, answered, ones, 0 AS shown_answered, 0 AS shown_ones, 0 AS minute
    FROM counts
    UNION ALL SELECT experiment, arm, 0, 0, answered, ones, minute FROM steps
)
GROUP BY experiment, arm HAVING sum(answered) > 0 OR sum(shown_answered) > 0
"""
SAVE_KEY = """
INSERT INTO keys (name, role, hash, origins, decisions_per_minute, expiry)
VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT (hash) DO UPDATE SET name = excluded.name, role = excluded.role,
    origins = excluded.origins, decisions_per_minute = excluded.decisions_per_minute,
    expiry = excluded.expiry
"""
KEYS = """
SELECT json_group_array(
    json_array(number, name, role, hex(hash), json(origins), decisions_per_minute, expiry))
FROM keys
"""
TABLES = "epochs", "experiments", "keys", "counts", "steps", "shown", "spent"
SIZES = "SELECT " + ", ".join(f"(SELECT count(*) FROM {name})" for name in TABLES)
LAST_EXPERIMENT = "SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'experiments'"
