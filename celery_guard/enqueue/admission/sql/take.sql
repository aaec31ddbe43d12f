-- Takes a place where all gates are known to have room: one statement, one commit.
-- The gates are locked in the order of their names; a room is a number that only this takes from,
-- so the lock is held for no longer than the statement and its commit.
-- Arguments: how long to wait for the lock of a gate ('10s'), scopes, steps and slacks in seconds, and how many
--            places are left to those whose turn it is (arrays of one length), seconds a count holds,
--            seconds of a turn, how many turns, the request's turn, how many scopes, lane, tenant, seconds the place is kept, how many scopes
-- Returns: the reservation's id; no row when a gate is missing, has to be counted anew or is full.
WITH asked AS (
    SELECT a.*
    FROM set_config('lock_timeout', %s, true) AS patience,
        -- A crash of the server takes the caller's transaction with it: its place may go too.
        set_config('synchronous_commit', 'off', true) AS unhurried,
        unnest(%s::text[], %s::float8[], %s::float8[], %s::integer[]) AS a (scope, step, slack, kept)
),
open AS (
    SELECT gate.scope, asked.step
    FROM celery_guard_gate AS gate JOIN asked ON asked.scope = gate.scope
    WHERE gate.room > 0
        AND gate.counted_at > clock_timestamp() - %s * interval '1 second'
        AND (
            gate.room > asked.kept
            OR floor(extract(epoch FROM clock_timestamp()) / %s)::bigint %% %s = %s
        )
        AND (
            gate.next_at IS NULL
            OR gate.next_at <= clock_timestamp() + asked.slack * interval '1 second'
        )
    ORDER BY gate.scope
    FOR UPDATE OF gate
),
taken AS (
    UPDATE celery_guard_gate AS gate
    SET room = gate.room - 1,
        next_at = CASE WHEN open.step > 0 THEN
            greatest(gate.next_at, clock_timestamp()) + open.step * interval '1 second'
        END
    FROM open
    WHERE open.scope = gate.scope AND (SELECT count(*) FROM open) = %s
    RETURNING gate.scope
)
INSERT INTO celery_guard_reservation (lane, tenant, until)
SELECT %s, %s, clock_timestamp() + %s * interval '1 second'
WHERE (SELECT count(*) FROM taken) = %s
RETURNING id
