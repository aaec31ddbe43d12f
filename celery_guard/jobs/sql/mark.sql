-- The end of release_shares.sql and resend.sql: mark the picked jobs sent and return them.
-- in:  expired: the error text of a job that expired
-- out: coalesce_key, id, public_id, task, plain, awaited, state, sent_at, sends, message_id,
--      body, envelope, dependency, tenant, oldest first
-- Picked jobs with a coalesce key are only told: they are folded before one of them is sent.
-- A job past its expiry ends here instead of being sent.
moved AS (
    UPDATE celery_guard_job AS job
    SET sent_at = CASE WHEN job.expires_at <= clock.now THEN NULL ELSE clock.now END,
        sends = job.sends + CASE WHEN job.expires_at <= clock.now THEN 0 ELSE 1 END,
        state = CASE WHEN job.expires_at <= clock.now THEN 'expired' ELSE job.state END,
        reason = CASE WHEN job.expires_at <= clock.now THEN 'expired' ELSE job.reason END,
        due_at = CASE WHEN job.expires_at <= clock.now THEN NULL ELSE job.due_at END,
        finished_at = CASE WHEN job.expires_at <= clock.now THEN clock.now END,
        error = CASE WHEN job.expires_at <= clock.now THEN %(expired)s ELSE job.error END
    FROM clock
    -- An array, and LATERAL with a limit below: look-ups by id, whatever the planner thinks of
    -- the tables' sizes. A join would read a whole table for every batch.
    WHERE job.id = ANY (ARRAY(SELECT id FROM picked WHERE coalesce_key IS NULL))
    RETURNING job.id, job.public_id, job.task, job.plain, job.awaited, job.state,
              job.sent_at, job.sends, job.due_at, job.message_id, job.dependency, job.tenant
)
SELECT coalesce_key, id, public_id, task, plain, awaited, state, sent_at, sends, message_id,
       body, envelope, dependency, tenant
FROM (
    SELECT NULL::varchar AS coalesce_key, moved.due_at, moved.id, moved.public_id, moved.task,
           moved.plain, moved.awaited, moved.state, moved.sent_at, moved.sends, moved.message_id,
           message.body, message.envelope, moved.dependency, moved.tenant
    FROM moved
    LEFT JOIN LATERAL (
        SELECT body, envelope FROM celery_guard_outboxmessage WHERE id = moved.message_id LIMIT 1
    ) AS message ON true
    UNION ALL
    SELECT coalesce_key, NULL, id, NULL, task, false, false, '', NULL, 0, NULL, NULL, NULL, '', ''
    FROM picked
    WHERE coalesce_key IS NOT NULL
) AS told
ORDER BY due_at, id
