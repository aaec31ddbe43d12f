-- Take a sent job that no switch holds. %s: owner, lease in seconds, id, public id (NULL: any), whether
-- the commit need not wait for the disk. Returns the row, or nothing.
-- No SKIP LOCKED: whoever holds the row is about to commit a move, and this waits to see it.
-- A job of a coalesce key takes the key's slot, which is unique: an error says that it is taken.
UPDATE celery_guard_job
   SET state = 'running',
       reason = '',
       fence = fence + 1,
       starts = starts + 1,
       owner = %s,
       running_key = CASE WHEN coalesce_key IS NOT NULL THEN
           encode(sha256(convert_to(task || E'\n' || coalesce_key, 'UTF8')), 'hex') END,
       started_at = clock_timestamp(),
       lease_until = clock_timestamp() + make_interval(secs => %s)
 WHERE id = %s
   AND public_id = COALESCE(%s, public_id)
   AND state = 'waiting'
   AND sent_at IS NOT NULL
   AND (expires_at IS NULL OR expires_at > clock_timestamp())
   AND (NOT %s OR set_config('synchronous_commit', 'off', true) IS NOT NULL)
   AND NOT EXISTS (
       SELECT 1 FROM celery_guard_switch AS hold
       WHERE hold.expires_at > clock_timestamp() AND hold.ended_at IS NULL AND hold.action = 'hold'
         AND hold.lane IN ('', celery_guard_job.lane) AND hold.task IN ('', celery_guard_job.task)
         AND hold.tenant IN ('', celery_guard_job.tenant)
   )
RETURNING fence, public_id, key, lane, starts, failures, lost, awaited, survivor_id, started_at,
          coalesce_key, expires_at, mode, first_due_at, tenant
