-- Version 2 of the release of one lane's due jobs as a function, which plans it once a session: marks
-- them sent, returns them with their messages. Never edited once released. Version 1 was planned anew at
-- each of a session's first five calls, which took twice as long as what it does.
-- Arguments: its_owner, its_term: the lead on its_lane that must still hold; batch: most rows;
--            room: jobs that may be with the broker or run, NULL for no bound; one that waits for the
--            outcome of an effect does neither; alone: nothing where tenants wait or a hold touches
--            the lane; expired: the error text of a job that expired.
-- Returns: coalesce_key, id, public_id, task, plain, awaited, state, sent_at, sends, message_id, body,
--          envelope, dependency, oldest first. Jobs with a coalesce key are only told: they are folded before one
--          of them is sent. A job past its expiry ends here instead of being sent.
-- Without scans of whole tables or ranges: a plan made while the tables were empty is kept when they
-- are full.
CREATE OR REPLACE FUNCTION celery_guard_release_2(
    its_lane text, its_owner uuid, its_term integer, batch integer, room integer, alone boolean,
    expired text
) RETURNS TABLE (
    coalesce_key varchar, id bigint, public_id uuid, task varchar, plain boolean, awaited boolean,
    state varchar, sent_at timestamptz, sends integer, message_id bigint, body bytea, envelope text,
    dependency varchar
) LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE
    moment CONSTANT timestamptz := clock_timestamp();
BEGIN
    -- The mark need not be on disk before the message goes: if a crash of the server takes it
    -- back, the job is simply due again, and no worker claims a job that isn't marked.
    PERFORM set_config('synchronous_commit', 'off', true);
    RETURN QUERY
    WITH picked AS (
        SELECT job.id, job.task, job.coalesce_key
        FROM celery_guard_job AS job
        WHERE job.lane = its_lane AND job.sent_at IS NULL AND job.due_at <= moment
          AND EXISTS (
              SELECT 1 FROM celery_guard_lanelead AS lead
              WHERE lead.lane = its_lane AND lead.owner = its_owner AND lead.term = its_term
                AND lead.lead_until > moment
          )
          AND NOT (alone AND (
              EXISTS (
                  SELECT 1 FROM celery_guard_switch AS hold
                  WHERE hold.expires_at > moment AND hold.ended_at IS NULL
                    AND hold.action = 'hold' AND hold.lane IN ('', its_lane)
              )
              -- A loose index scan: one look-up a tenant, however many jobs each of them has.
              OR EXISTS (
                  WITH RECURSIVE tenants(tenant) AS (
                      SELECT min(first.tenant) FROM celery_guard_job AS first
                      WHERE first.tenant <> '' AND first.due_at IS NOT NULL
                      UNION ALL
                      SELECT (SELECT min(next.tenant) FROM celery_guard_job AS next
                              WHERE next.tenant > tenants.tenant AND next.tenant <> ''
                                AND next.due_at IS NOT NULL)
                      FROM tenants WHERE tenants.tenant IS NOT NULL
                  )
                  SELECT 1 FROM tenants JOIN LATERAL (
                      SELECT 1 FROM celery_guard_job AS theirs
                      WHERE theirs.tenant = tenants.tenant AND theirs.tenant <> ''
                        AND theirs.lane = its_lane AND theirs.sent_at IS NULL
                        AND theirs.due_at <= moment
                      LIMIT 1
                  ) AS waits ON true
              )
          ))
        -- sent_at is NULL in every row, but naming it lets the planner read the index in order.
        ORDER BY job.sent_at, job.due_at
        LIMIT greatest(0, least(batch, room - (
            SELECT count(*)::integer FROM celery_guard_job AS held
            WHERE held.lane = its_lane AND held.sent_at IS NOT NULL AND held.state <> 'reconciling'
        )))
        FOR UPDATE OF job SKIP LOCKED
    ),
    moved AS (
        UPDATE celery_guard_job AS job
        SET sent_at = CASE WHEN job.expires_at <= moment THEN NULL ELSE moment END,
            sends = job.sends + CASE WHEN job.expires_at <= moment THEN 0 ELSE 1 END,
            state = CASE WHEN job.expires_at <= moment THEN 'expired' ELSE job.state END,
            reason = CASE WHEN job.expires_at <= moment THEN 'expired' ELSE job.reason END,
            due_at = CASE WHEN job.expires_at <= moment THEN NULL ELSE job.due_at END,
            finished_at = CASE WHEN job.expires_at <= moment THEN moment END,
            error = CASE WHEN job.expires_at <= moment THEN expired ELSE job.error END
        -- An array, and LATERAL with a limit below: look-ups by id, whatever the planner thinks of
        -- the tables' sizes. A join would read a whole table for every batch.
        WHERE job.id = ANY (ARRAY(SELECT picked.id FROM picked WHERE picked.coalesce_key IS NULL))
        RETURNING job.id, job.public_id, job.task, job.plain, job.awaited, job.state,
                  job.sent_at, job.sends, job.due_at, job.message_id, job.dependency
    )
    SELECT told.coalesce_key, told.id, told.public_id, told.task, told.plain, told.awaited,
           told.state, told.sent_at, told.sends, told.message_id, told.body, told.envelope,
           told.dependency
    FROM (
        SELECT NULL::varchar AS coalesce_key, moved.due_at, moved.id, moved.public_id, moved.task,
               moved.plain, moved.awaited, moved.state, moved.sent_at, moved.sends,
               moved.message_id, message.body, message.envelope, moved.dependency
        FROM moved
        LEFT JOIN LATERAL (
            SELECT stored.body, stored.envelope FROM celery_guard_outboxmessage AS stored
            WHERE stored.id = moved.message_id LIMIT 1
        ) AS message ON true
        UNION ALL
        SELECT picked.coalesce_key, NULL, picked.id, NULL, picked.task, false, false, '', NULL, 0,
               NULL, NULL, NULL, ''
        FROM picked
        WHERE picked.coalesce_key IS NOT NULL
    ) AS told
    ORDER BY told.due_at, told.id;
END
$$;
