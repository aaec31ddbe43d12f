-- Version 1 of the claim as a function, which plans it once a session. Never edited once released.
-- Takes a sent job that no switch holds.
-- Arguments: its_public_id: NULL for any; lease: in seconds; lazily: the commit need not wait for
--            the disk.
-- Returns: the job as it is after the claim, or, with claimed = false, how the job stands that could
--          not be claimed; nothing where there is no such job. What follows tenant belongs to that.
-- No SKIP LOCKED: whoever holds the row is about to commit a move, and this waits to see it.
-- A job of a coalesce key takes the key's slot, which is unique: an error says that it is taken.
-- Without scans of whole tables: a plan made while the table was empty is kept when it is full.
CREATE OR REPLACE FUNCTION celery_guard_claim_1(
    its_id bigint, its_public_id uuid, its_owner uuid, lease double precision, lazily boolean
) RETURNS TABLE (
    claimed boolean, fence integer, public_id uuid, key varchar, lane varchar, starts integer,
    failures integer, lost integer, awaited boolean, survivor_id bigint, started_at timestamptz,
    coalesce_key varchar, expires_at timestamptz, mode varchar, first_due_at timestamptz,
    tenant varchar, state varchar, reason varchar, sent boolean, expired boolean, owner uuid,
    result text, error text, answered boolean
) LANGUAGE plpgsql SET enable_seqscan = off AS $$
#variable_conflict use_column
DECLARE
    -- For the holds alone: an index can be asked with it. A job may expire while its lock is awaited.
    moment CONSTANT timestamptz := clock_timestamp();
BEGIN
    IF lazily THEN
        PERFORM set_config('synchronous_commit', 'off', true);
    END IF;
    RETURN QUERY
    UPDATE celery_guard_job AS job
       SET state = 'running',
           reason = '',
           fence = job.fence + 1,
           starts = job.starts + 1,
           owner = its_owner,
           running_key = CASE WHEN job.coalesce_key IS NOT NULL THEN
               encode(sha256(convert_to(job.task || E'\n' || job.coalesce_key, 'UTF8')), 'hex') END,
           started_at = clock_timestamp(),
           lease_until = clock_timestamp() + make_interval(secs => lease)
     WHERE job.id = its_id
       AND job.public_id = coalesce(its_public_id, job.public_id)
       AND job.state = 'waiting'
       AND job.sent_at IS NOT NULL
       AND (job.expires_at IS NULL OR job.expires_at > clock_timestamp())
       AND NOT EXISTS (
           SELECT 1 FROM celery_guard_switch AS hold
           WHERE hold.expires_at > moment AND hold.ended_at IS NULL AND hold.action = 'hold'
             AND hold.lane IN ('', job.lane) AND hold.task IN ('', job.task)
             AND hold.tenant IN ('', job.tenant)
       )
    RETURNING true, job.fence, job.public_id, job.key, job.lane, job.starts, job.failures, job.lost,
              job.awaited, job.survivor_id, job.started_at, job.coalesce_key, job.expires_at,
              job.mode, job.first_due_at, job.tenant, NULL::varchar, NULL::varchar, NULL::boolean,
              NULL::boolean, NULL::uuid, NULL::text, NULL::text, NULL::boolean;
    IF NOT FOUND THEN
        RETURN QUERY
        SELECT false, job.fence, job.public_id, NULL::varchar, NULL::varchar, NULL::integer,
               NULL::integer, NULL::integer, NULL::boolean, NULL::bigint, NULL::timestamptz,
               NULL::varchar, NULL::timestamptz, NULL::varchar, NULL::timestamptz, job.tenant,
               job.state, job.reason, job.sent_at IS NOT NULL,
               coalesce(job.expires_at <= clock_timestamp(), false), job.owner, job.result,
               job.error, job.answered_at IS NOT NULL
          FROM celery_guard_job AS job
         WHERE job.id = its_id AND job.public_id = coalesce(its_public_id, job.public_id);
    END IF;
END
$$;
