-- Release the due jobs of one lane: mark them sent, return them with their messages.
-- in:  lane; owner, term: the lead that must still hold; batch: most rows;
--      window: jobs that may be with the broker or run, NULL for no bound; one that waits for the
--      outcome of an effect does neither
-- mark.sql follows.
WITH clock AS MATERIALIZED (
    -- The mark need not be on disk before the message goes: if a crash of the server takes it
    -- back, the job is simply due again, and no worker claims a job that isn't marked.
    SELECT clock_timestamp() AS now, set_config('synchronous_commit', 'off', true)
),
picked AS (
    SELECT job.id, job.task, job.coalesce_key
    FROM celery_guard_job AS job
    WHERE job.lane = %(lane)s AND job.sent_at IS NULL AND job.due_at <= (SELECT now FROM clock)
      AND EXISTS (
          SELECT 1 FROM celery_guard_lanelead AS lead
          WHERE lead.lane = %(lane)s AND lead.owner = %(owner)s AND lead.term = %(term)s
            AND lead.lead_until > (SELECT now FROM clock)
      )
    -- sent_at is NULL in every row, but naming it lets the planner read the index in order.
    ORDER BY job.sent_at, job.due_at
    LIMIT greatest(0, least(%(batch)s, %(window)s::int - (
        SELECT count(*) FROM celery_guard_job AS held
        WHERE held.lane = %(lane)s AND held.sent_at IS NOT NULL AND held.state <> 'reconciling'
    )))
    FOR UPDATE OF job SKIP LOCKED
),
