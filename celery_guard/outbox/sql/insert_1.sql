-- Version 1 of the insert as a function: its two plans are made once a session, not once a call.
-- Never edited once released: a change is a new version beside this one, so that the old and the
-- new code of a rolling upgrade each find theirs. It runs with the rights and the search_path of
-- its caller, like the statements in it.
-- Arguments: as the columns; delay, expires_in and max_delay in seconds from now;
--            due_at wins where it is later, expires_at wins over expires_in.
-- Returns: the job's id; NULL, and nothing is written, when the key or the public id is taken.
CREATE OR REPLACE FUNCTION celery_guard_insert_1(
    public_id uuid, task text, key text, fingerprint text, lane text, tenant text,
    reason text, plain boolean, awaited boolean,
    due_at timestamptz, delay double precision,
    expires_at timestamptz, expires_in double precision, survivor_id bigint,
    dependency text, coalesce_key text, max_delay double precision, mode text,
    body bytea, envelope text
) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    moment CONSTANT timestamptz := clock_timestamp();
    due CONSTANT timestamptz := greatest(due_at, moment + delay * interval '1 second');
    new_job bigint;
    new_message bigint;
BEGIN
    INSERT INTO celery_guard_job AS job (
        public_id, task, key, fingerprint, lane, tenant, state, reason, plain, awaited,
        created_at, first_due_at, due_at, expires_at,
        fence, starts, sends, failures, lost, survivor_id,
        dependency, coalesce_key, max_due_at, mode, message_id
    ) VALUES (
        public_id, task, key, fingerprint, lane, tenant, 'waiting', reason, plain, awaited,
        moment, due, due, coalesce(expires_at, moment + expires_in * interval '1 second'),
        0, 0, 0, 0, 0, survivor_id,
        dependency, coalesce_key, moment + max_delay * interval '1 second', mode,
        nextval('celery_guard_outboxmessage_id_seq')
    )
    ON CONFLICT DO NOTHING
    RETURNING job.id, job.message_id INTO new_job, new_message;
    IF new_job IS NOT NULL THEN
        INSERT INTO celery_guard_outboxmessage (id, body, envelope, created_at)
        VALUES (new_message, body, envelope, moment);
    END IF;
    RETURN new_job;
END
$$;
