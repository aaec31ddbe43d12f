-- Release the due jobs of one lane by shares: mark them sent, return them with their messages.
-- in:  lane; owner, term: the lead that must still hold; tenants, shares: arrays of equal length,
--      most jobs of each tenant; nobody: the same of jobs without a tenant, looked for among the
--      lane's oldest head jobs that are due since then, and spare more of them where others have locked some
-- mark.sql follows.
WITH clock AS MATERIALIZED (
    -- The mark need not be on disk before the message goes: if a crash of the server takes it
    -- back, the job is simply due again, and no worker claims a job that isn't marked.
    SELECT clock_timestamp() AS now, set_config('synchronous_commit', 'off', true)
),
held AS MATERIALIZED (
    SELECT 1 FROM celery_guard_lanelead AS lead
    WHERE lead.lane = %(lane)s AND lead.owner = %(owner)s AND lead.term = %(term)s
      AND lead.lead_until > (SELECT now FROM clock)
),
picked AS (
    SELECT oldest.id, oldest.task, oldest.coalesce_key
    FROM unnest(%(tenants)s::text[], %(shares)s::int[]) AS mine (tenant, share),
         -- Locked before it is counted: rows that others hold use up nobody's share.
         LATERAL (
             SELECT theirs.id, theirs.task, theirs.coalesce_key FROM celery_guard_job AS theirs
             WHERE theirs.tenant = mine.tenant AND theirs.tenant <> ''
               AND theirs.lane = %(lane)s AND theirs.sent_at IS NULL
               AND theirs.due_at <= (SELECT now FROM clock) AND EXISTS (SELECT 1 FROM held)
             ORDER BY theirs.due_at
             LIMIT mine.share
             FOR UPDATE OF theirs SKIP LOCKED
         ) AS oldest
    UNION ALL
    SELECT nobodys.id, nobodys.task, nobodys.coalesce_key
    FROM (
        SELECT job.id, job.task, job.coalesce_key FROM celery_guard_job AS job
        WHERE job.id = ANY (ARRAY(
                  SELECT head.id
                  FROM (
                      SELECT line.id, line.tenant FROM celery_guard_job AS line
                      WHERE line.lane = %(lane)s AND line.sent_at IS NULL
                        AND line.due_at <= (SELECT now FROM clock)
                        AND line.due_at >= %(since)s::timestamptz
                      ORDER BY line.sent_at, line.due_at
                      LIMIT CASE WHEN %(nobody)s > 0 THEN %(head)s ELSE 0 END
                  ) AS head
                  WHERE head.tenant = ''
                  LIMIT %(nobody)s + %(spare)s
              ))
          AND job.lane = %(lane)s AND job.sent_at IS NULL
          AND job.due_at <= (SELECT now FROM clock) AND EXISTS (SELECT 1 FROM held)
        ORDER BY job.due_at
        LIMIT %(nobody)s
        FOR UPDATE OF job SKIP LOCKED
    ) AS nobodys
),
