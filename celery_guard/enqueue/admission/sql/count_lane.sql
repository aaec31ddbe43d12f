-- How many jobs wait in a lane, and how many places are kept in it: one statement, so that a place
-- which is being consumed counts once, as the place or as the job.
-- Arguments: lane, latest due time that counts, most, lane, most, lane
-- Returns: the number, exact below most.
SELECT
    (
        SELECT count(*) FROM (
            SELECT 1 AS one FROM celery_guard_job
            WHERE lane = %s AND sent_at IS NULL AND due_at <= %s LIMIT %s
        ) AS unsent
    ) + (
        SELECT count(*) FROM (
            SELECT 1 AS one FROM celery_guard_job
            WHERE lane = %s AND sent_at IS NOT NULL AND state = 'waiting' LIMIT %s
        ) AS sent
    ) + (
        SELECT count(*) FROM celery_guard_reservation WHERE lane = %s
    )
