-- Take a job without a message. %s: owner, lease in seconds, id, public id (NULL: any), whether
-- before its time too.
-- A job of a coalesce key takes the key's slot, which is unique: an error says that it is taken.
UPDATE celery_guard_job
   SET state = 'running',
       reason = '',
       fence = fence + 1,
       starts = starts + 1,
       owner = %s,
       sent_at = COALESCE(sent_at, clock_timestamp()),
       running_key = CASE WHEN coalesce_key IS NOT NULL THEN
           encode(sha256(convert_to(task || E'\n' || coalesce_key, 'UTF8')), 'hex') END,
       started_at = clock_timestamp(),
       lease_until = clock_timestamp() + make_interval(secs => %s)
 WHERE id = %s
   AND public_id = COALESCE(%s, public_id)
   AND state = 'waiting'
   AND (sent_at IS NOT NULL OR due_at <= clock_timestamp() OR %s)
   AND (expires_at IS NULL OR expires_at > clock_timestamp())
RETURNING fence, public_id, key, lane, starts, failures, lost, awaited, survivor_id, started_at,
          coalesce_key, expires_at, mode, first_due_at, tenant
