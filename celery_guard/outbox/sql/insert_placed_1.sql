-- Version 1 of the insert of a job for which a place was kept: insert_1, which it calls, and the end of
-- the place, in one call. Never edited once released: a change is a new version beside this one.
-- Arguments: as those of insert_1; place: the reservation's id.
-- Returns: the job's id, as its negative where the place was over; NULL, and nothing is written and
--          the place stays, when the key or the public id is taken.
-- Without scans of whole tables: a plan made while the table was empty is kept when it is full.
CREATE OR REPLACE FUNCTION celery_guard_insert_placed_1(
    public_id uuid, task text, key text, fingerprint text, lane text, tenant text,
    reason text, plain boolean, awaited boolean,
    due_at timestamptz, delay double precision,
    expires_at timestamptz, expires_in double precision, survivor_id bigint,
    dependency text, coalesce_key text, max_delay double precision, mode text,
    body bytea, envelope text, place bigint
) RETURNS bigint LANGUAGE plpgsql SET enable_seqscan = off AS $$
DECLARE
    new_job CONSTANT bigint := celery_guard_insert_1(
        public_id, task, key, fingerprint, lane, tenant, reason, plain, awaited, due_at, delay,
        expires_at, expires_in, survivor_id, dependency, coalesce_key, max_delay, mode, body, envelope
    );
BEGIN
    IF new_job IS NULL THEN
        RETURN NULL;
    END IF;
    DELETE FROM celery_guard_reservation AS kept WHERE kept.id = place;
    RETURN CASE WHEN FOUND THEN new_job ELSE -new_job END;
END
$$;
