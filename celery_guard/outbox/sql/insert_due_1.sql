-- Version 1 of the commonest insert: a guarded job that is due at once, nothing else said of it. To
-- look at twenty arguments cost the server as much as a row does. Never edited once released.
-- Arguments: as the columns; the public id was made for this call, so it is nobody else's.
-- Returns: the job's id; NULL, and nothing is written, when the key is taken.
CREATE OR REPLACE FUNCTION celery_guard_insert_due_1(
    public_id uuid, task text, key text, fingerprint text, lane text, tenant text,
    awaited boolean, dependency text, body bytea, envelope text
) RETURNS bigint LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    moment CONSTANT timestamptz := clock_timestamp();
    new_job bigint;
    new_message bigint;
BEGIN
    INSERT INTO celery_guard_job AS job (
        public_id, task, key, fingerprint, lane, tenant, state, reason, plain, awaited,
        created_at, first_due_at, due_at, fence, starts, sends, failures, lost,
        dependency, mode, message_id
    ) VALUES (
        public_id, task, key, fingerprint, lane, tenant, 'waiting', 'new', false, awaited,
        moment, moment, moment, 0, 0, 0, 0, 0,
        dependency, 'on', nextval('celery_guard_outboxmessage_id_seq')
    )
    ON CONFLICT (task, key) DO NOTHING
    RETURNING job.id, job.message_id INTO new_job, new_message;
    IF new_job IS NOT NULL THEN
        INSERT INTO celery_guard_outboxmessage (id, body, envelope, created_at)
        VALUES (new_message, body, envelope, moment);
    END IF;
    RETURN new_job;
END
$$;
