"""The SQL of the PostgreSQL store; the functions that it calls are in the migrations.

The table `totals` has, for each arm, the sums of its counts and of its published steps (`shown_…`).
"""

COMMIT = (
    "SELECT * FROM commit_in_steps(%s, %s, %s, %s, %s::bigint[], %s::bigint[], %s::bigint[], "
    "%s::bigint[], %s::bigint[], %s::bigint[], %s::bigint[], %s::bigint[], %s::bigint[], "
    "%s::bigint[], %s::text[])"
)
_SUMS = "sum(issued)::bigint, sum(answered)::bigint, sum(ones)::bigint"
TOTALS = """
SELECT arm, issued, answered, ones FROM totals
WHERE experiment = %s AND (issued > 0 OR answered > 0)
"""
TOTALS_BEFORE = f"""
SELECT arm, {_SUMS} FROM counts WHERE experiment = %s AND minute < %s GROUP BY arm
"""
HISTORY = f"""
SELECT minute - minute %% %s AS bucket, arm, {_SUMS} FROM counts
WHERE experiment = %s AND minute >= %s AND minute < %s GROUP BY bucket, arm
"""
PUBLISHED = """
SELECT arm, shown_answered, shown_ones, shown_minute FROM totals
WHERE experiment = %s AND shown_answered > 0
"""
STEPS = """
SELECT minute - minute %% %s AS bucket, arm, sum(answered)::bigint, sum(ones)::bigint, max(minute)
FROM steps WHERE experiment = %s AND minute >= %s AND minute < %s GROUP BY bucket, arm
"""
ROLL_BACK = f"""
WITH removed AS (
    DELETE FROM counts WHERE experiment = %s AND minute >= %s AND minute < %s
    RETURNING experiment, arm, issued, answered, ones
), sums AS (
    SELECT experiment, arm, {_SUMS} FROM removed GROUP BY experiment, arm
), subtracted AS (
    UPDATE totals AS t SET issued = t.issued - s.issued, answered = t.answered - s.answered,
        ones = t.ones - s.ones
    FROM sums AS s (experiment, arm, issued, answered, ones)
    WHERE t.experiment = s.experiment AND t.arm = s.arm
)
SELECT * FROM sums
"""
JOIN_COUNTS = f"""
WITH removed AS (
    DELETE FROM counts WHERE experiment = %(experiment)s AND minute < %(before)s
        AND minute %% %(width)s <> 0
    RETURNING experiment, minute, arm, issued, answered, ones
)
INSERT INTO counts AS c (experiment, minute, arm, issued, answered, ones)
SELECT experiment, minute - minute %% %(width)s AS bucket, arm, {_SUMS} FROM removed
GROUP BY experiment, bucket, arm
ON CONFLICT (experiment, minute, arm) DO UPDATE SET issued = c.issued + excluded.issued,
    answered = c.answered + excluded.answered, ones = c.ones + excluded.ones
"""
JOIN_STEPS = """
WITH removed AS (
    DELETE FROM steps WHERE experiment = %(experiment)s AND minute < %(before)s
        AND minute %% %(width)s <> 0
    RETURNING experiment, minute, arm, answered, ones
)
INSERT INTO steps AS s (experiment, minute, arm, answered, ones)
SELECT experiment, minute - minute %% %(width)s AS bucket, arm, sum(answered), sum(ones)
FROM removed GROUP BY experiment, bucket, arm
ON CONFLICT (experiment, minute, arm) DO UPDATE SET
    answered = s.answered + excluded.answered, ones = s.ones + excluded.ones
"""
DATE_PUBLISHED_BY_BUCKET = """
UPDATE totals SET shown_minute = shown_minute - shown_minute %% %(width)s
WHERE experiment = %(experiment)s AND shown_minute < %(before)s AND shown_minute %% %(width)s <> 0
"""
_MOVED_BY_A_STEP = """
SELECT arm FROM totals
WHERE experiment = %(experiment)s AND abs(answered - shown_answered) >= %(step)s
"""
RESTATE_STEPS = (
    "SELECT FROM totals WHERE experiment = %(experiment)s ORDER BY arm FOR UPDATE",
    f"DELETE FROM steps WHERE experiment = %(experiment)s AND arm IN ({_MOVED_BY_A_STEP})",
    f"""
    INSERT INTO steps SELECT experiment, %(minute)s, arm, answered, ones FROM totals
    WHERE experiment = %(experiment)s AND arm IN ({_MOVED_BY_A_STEP}) AND answered >= %(step)s
    """,
    f"""
    UPDATE totals SET shown_answered = CASE WHEN answered >= %(step)s THEN answered ELSE 0 END,
        shown_ones = CASE WHEN answered >= %(step)s THEN ones ELSE 0 END,
        shown_minute = CASE WHEN answered >= %(step)s THEN %(minute)s ELSE 0 END
    WHERE experiment = %(experiment)s AND arm IN ({_MOVED_BY_A_STEP})
    """,
)
SAVE = """
INSERT INTO experiments (slug, definition, key_hash) VALUES (%s, %s, %s)
ON CONFLICT DO NOTHING RETURNING number
"""
CHANGE = """
UPDATE experiments SET definition = %s WHERE number = %s AND slug = %s AND definition = %s
"""
SAVE_KEY = """
INSERT INTO keys (name, role, hash, origins, decisions_per_minute, expiry)
VALUES (%s, %s, %s, %s, %s, %s)
ON CONFLICT (hash) DO UPDATE SET name = excluded.name, role = excluded.role,
    origins = excluded.origins, decisions_per_minute = excluded.decisions_per_minute,
    expiry = excluded.expiry
"""
KEYS = "SELECT name, role, hash, origins, decisions_per_minute, expiry FROM keys ORDER BY number"
TABLES = "epochs", "experiments", "keys", "counts", "steps", "totals", "spent"
SIZES = "SELECT " + ", ".join(f"(SELECT count(*) FROM {name})" for name in TABLES)
LOCK_COUNTS = "SELECT pg_advisory_xact_lock(2003331444, 3)"  # b"whit"
SNAPSHOT = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY"
OTHER_SERVERS = """
SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
    AND application_name LIKE 'whitelie %%' AND application_name <> %s
"""
LAST_EXPERIMENT = """
SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM experiments_number_seq
"""
FILL_TOTALS = """
INSERT INTO totals
SELECT experiment, arm, sum(issued), sum(answered), sum(ones), sum(shown_answered),
    sum(shown_ones), max(minute)
FROM (
    SELECT experiment, arm, issued, answered, ones, 0 AS shown_answered, 0 AS shown_ones,
        0 AS minute
    FROM counts
    UNION ALL SELECT experiment, arm, 0, 0, 0, answered, ones, minute FROM steps
) AS rows GROUP BY experiment, arm
"""
