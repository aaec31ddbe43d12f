-- End a held job. %s: reason, result, id, fence, owner. The row count says whether it was held.
UPDATE celery_guard_job
   SET state = 'succeeded',
       reason = %s,
       result = %s,
       error = NULL,
       sent_at = NULL,
       due_at = NULL,
       owner = NULL,
       running_key = NULL,
       lease_until = NULL,
       finished_at = clock_timestamp()
 WHERE id = %s
   AND state = 'running'
   AND fence = %s
   AND owner = %s
