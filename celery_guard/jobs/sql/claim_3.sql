-- Version 3 of the claim as a function, which plans it once a session. Never edited once released.
-- Takes a sent job that no switch holds. Version 2 was planned anew at each of a session's first five
-- calls, which took longer than what it does.
-- Arguments: its_public_id: NULL for any; lease: in seconds; lazily: the commit need not wait for
--            the disk.
-- Returns: a JSON array; times in it are microseconds since 1970. Begins with true: the job as it is
--          after the claim. With false: how the job stands that could not be claimed. NULL where
--          there is no such job.
-- No SKIP LOCKED: whoever holds the row is about to commit a move, and this waits to see it.
-- A job of a coalesce key takes the key's slot, which is unique: an error says that it is taken.
-- Without scans of whole tables: a plan made while the table was empty is kept when it is full. Nor may
-- it read the lanes' index, as it did where few jobs were sent: hence num_nulls.
CREATE OR REPLACE FUNCTION celery_guard_claim_3(
    its_id bigint, its_public_id uuid, its_owner uuid, lease double precision, lazily boolean
) RETURNS text LANGUAGE plpgsql
SET enable_seqscan = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    -- For the holds alone: an index can be asked with it. A job may expire while its lock is awaited.
    moment CONSTANT timestamptz := clock_timestamp();
    told text;
BEGIN
    IF lazily THEN
        PERFORM set_config('synchronous_commit', 'off', true);
    END IF;
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
       AND num_nulls(job.sent_at) = 0
       AND (job.expires_at IS NULL OR job.expires_at > clock_timestamp())
       AND NOT EXISTS (
           SELECT 1 FROM celery_guard_switch AS hold
           WHERE hold.expires_at > moment AND hold.ended_at IS NULL AND hold.action = 'hold'
             AND hold.lane IN ('', job.lane) AND hold.task IN ('', job.task)
             AND hold.tenant IN ('', job.tenant)
       )
    RETURNING json_build_array(
        true, job.fence, job.public_id, job.key, job.lane, job.starts, job.failures, job.lost,
        job.awaited, job.survivor_id, (extract(epoch FROM job.started_at) * 1000000)::bigint,
        job.coalesce_key, (extract(epoch FROM job.expires_at) * 1000000)::bigint, job.mode,
        (extract(epoch FROM job.first_due_at) * 1000000)::bigint, job.tenant
    ) INTO told;
    IF NOT FOUND THEN
        SELECT json_build_array(
            false, job.fence, job.tenant, job.state, job.reason, job.sent_at IS NOT NULL,
            coalesce(job.expires_at <= clock_timestamp(), false), job.owner, job.result, job.error,
            job.answered_at IS NOT NULL
        ) INTO told
          FROM celery_guard_job AS job
         WHERE job.id = its_id AND job.public_id = coalesce(its_public_id, job.public_id);
    END IF;
    RETURN told;
END
$$;
