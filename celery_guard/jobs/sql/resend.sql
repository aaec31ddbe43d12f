-- Send again what was lost on the way: sent, never claimed, and there is evidence.
-- in:  lane; owner, term: the lead that must still hold; batch: most rows; grace, cap: seconds
-- mark.sql follows.
-- Evidence is on the lead's row: a job sent later was claimed a grace ago (proven_sent_at), or
-- the queue has been empty beside free workers for a grace (idle_since). A job waits longer
-- after every sending that no claim answered, so a long queue never storms.
WITH clock AS MATERIALIZED (
    -- The mark need not be on disk before the message goes: if a crash of the server takes it
    -- back, the job is simply due again, and no worker claims a job that isn't marked.
    SELECT clock_timestamp() AS now, set_config('synchronous_commit', 'off', true)
),
lead AS MATERIALIZED (
    SELECT coalesce(proven_sent_at, '-infinity') AS proven,
           coalesce(idle_since <= clock.now - make_interval(secs => %(grace)s), false) AS idle
    FROM celery_guard_lanelead, clock
    WHERE lane = %(lane)s AND owner = %(owner)s AND term = %(term)s AND lead_until > clock.now
),
picked AS (
    -- What was sent is past folding.
    SELECT job.id, job.task, NULL::varchar AS coalesce_key
    FROM celery_guard_job AS job
    WHERE job.lane = %(lane)s
      AND job.sent_at <= (SELECT now FROM clock) - make_interval(secs => %(grace)s)
      AND job.state = 'waiting' AND NOT job.plain
      AND job.sent_at <= (SELECT now FROM clock) - make_interval(secs => least(
          %(cap)s, %(grace)s * power(2, greatest(0, least(20, job.sends - job.starts - 1)))
      ))
      -- Known before any row is read: without evidence the jobs are not even looked at.
      AND EXISTS (SELECT 1 FROM lead WHERE idle OR proven > '-infinity')
      AND ((SELECT idle FROM lead) OR job.sent_at < (SELECT proven FROM lead))
    ORDER BY job.sent_at, job.due_at
    LIMIT %(batch)s
    FOR UPDATE OF job SKIP LOCKED
),
