-- Version 1 of a held job's success as a function, which plans it once a session. Never edited once
-- released. Raises CGL01 where the job is no longer held: what is sent after it in one message, the
-- COMMIT of the business transaction, is not carried out then.
-- Arguments: why: the reason; outcome: the return value as kombu JSON, NULL for none.
-- Without scans of whole tables: a plan made while the table was empty is kept when it is full.
CREATE OR REPLACE FUNCTION celery_guard_succeed_1(
    why text, outcome text, its_id bigint, its_fence integer, its_owner uuid
) RETURNS void LANGUAGE plpgsql SET enable_seqscan = off AS $$
BEGIN
    UPDATE celery_guard_job
       SET state = 'succeeded',
           reason = why,
           result = outcome,
           error = NULL,
           sent_at = NULL,
           due_at = NULL,
           owner = NULL,
           running_key = NULL,
           lease_until = NULL,
           finished_at = clock_timestamp()
     WHERE id = its_id
       AND state = 'running'
       AND fence = its_fence
       AND owner = its_owner;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'the job is no longer held by this attempt' USING ERRCODE = 'CGL01';
    END IF;
END
$$;
