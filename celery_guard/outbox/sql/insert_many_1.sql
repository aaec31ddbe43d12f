-- Version 1 of the insert of many jobs with their messages, which also fills in their envelopes; never
-- edited once released.
-- Arguments: "shared" is a JSON object of what all jobs have in common, "own" an array with what
--            else each has, in the order in which keys are to be locked. A field stands in one of
--            the two, or in neither for NULL. "position" is the caller's order and decides the
--            order of release. "body" is text of ASCII, "body64" anything else, as base64.
--            "envelope" is a whole one. Where there is none, "form" takes the task's id (the public
--            id, where "task_id" is NULL), "args", "kwargs" and "place" as format() does, %1$s to %4$s.
-- Returns: a JSON object of position and id of each job inserted; those whose key or public id is
--          taken are left out.
CREATE OR REPLACE FUNCTION celery_guard_insert_many_1(shared json, own json)
RETURNS json LANGUAGE plpgsql AS $$
DECLARE
    moment CONSTANT timestamptz := clock_timestamp();
    inserted json;
BEGIN
    WITH input AS (
        SELECT
            o.position,
            coalesce(o.public_id, s.public_id) AS public_id,
            coalesce(o.task, s.task) AS task,
            coalesce(o.key, s.key) AS key,
            coalesce(o.fingerprint, s.fingerprint) AS fingerprint,
            coalesce(o.lane, s.lane) AS lane,
            coalesce(o.tenant, s.tenant) AS tenant,
            coalesce(o.reason, s.reason) AS reason,
            coalesce(o.plain, s.plain) AS plain,
            coalesce(o.awaited, s.awaited) AS awaited,
            greatest(
                coalesce(o.due_at, s.due_at),
                moment + coalesce(o.delay, s.delay) * interval '1 second'
            ) + o.position * interval '1 microsecond' AS due,
            coalesce(
                o.expires_at, s.expires_at,
                moment + coalesce(o.expires_in, s.expires_in) * interval '1 second'
            ) AS expires_at,
            coalesce(o.survivor_id, s.survivor_id) AS survivor_id,
            coalesce(o.dependency, s.dependency) AS dependency,
            coalesce(o.coalesce_key, s.coalesce_key) AS coalesce_key,
            moment + coalesce(o.max_delay, s.max_delay) * interval '1 second' AS max_due_at,
            coalesce(o.mode, s.mode) AS mode,
            coalesce(convert_to(o.body, 'UTF8'), decode(o.body64, 'base64')) AS body,
            coalesce(o.envelope, format(
                coalesce(o.form, s.form),
                coalesce(o.task_id, o.public_id::text), o.args, o.kwargs, o.place
            )) AS envelope,
            nextval('celery_guard_outboxmessage_id_seq') AS message_id
        FROM
            json_to_recordset(own) AS o (
                position integer, public_id uuid, task text, key text, fingerprint text,
                lane text, tenant text, reason text, plain boolean, awaited boolean,
                due_at timestamptz, delay double precision,
                expires_at timestamptz, expires_in double precision, survivor_id bigint,
                dependency text, coalesce_key text, max_delay double precision, mode text,
                body text, body64 text, envelope text,
                form text, task_id text, args text, kwargs text, place text
            ),
            json_to_record(shared) AS s (
                public_id uuid, task text, key text, fingerprint text,
                lane text, tenant text, reason text, plain boolean, awaited boolean,
                due_at timestamptz, delay double precision,
                expires_at timestamptz, expires_in double precision, survivor_id bigint,
                dependency text, coalesce_key text, max_delay double precision, mode text,
                form text
            )
    ),
    job AS (
        INSERT INTO celery_guard_job AS new_job (
            public_id, task, key, fingerprint, lane, tenant, state, reason, plain, awaited,
            created_at, first_due_at, due_at, expires_at,
            fence, starts, sends, failures, lost, survivor_id,
            dependency, coalesce_key, max_due_at, mode, message_id
        )
        SELECT
            input.public_id, input.task, input.key, input.fingerprint, input.lane, input.tenant,
            'waiting', input.reason, input.plain, input.awaited,
            moment, input.due, input.due, input.expires_at,
            0, 0, 0, 0, 0, input.survivor_id,
            input.dependency, input.coalesce_key, input.max_due_at, input.mode,
            input.message_id
        FROM input
        ON CONFLICT DO NOTHING
        RETURNING new_job.id, new_job.message_id
    ),
    message AS (
        INSERT INTO celery_guard_outboxmessage (id, body, envelope, created_at)
        SELECT input.message_id, input.body, input.envelope, moment
        FROM job JOIN input USING (message_id)
    )
    SELECT coalesce(json_object_agg(input.position, job.id), '{}')
    INTO inserted
    FROM job JOIN input USING (message_id);
    RETURN inserted;
END
$$;
