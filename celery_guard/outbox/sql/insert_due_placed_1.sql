-- Version 1 of the commonest insert where a place was kept for it: insert_due_1, which it calls, and the
-- end of the place, in one call. Never edited once released: a change is a new version beside this one.
-- Arguments: as those of insert_due_1; place: the reservation's id.
-- Returns: the job's id, as its negative where the place was over; NULL, and nothing is written and
--          the place stays, when the key is taken.
-- Without scans of whole tables: a plan made while the table was empty is kept when it is full.
CREATE OR REPLACE FUNCTION celery_guard_insert_due_placed_1(
    public_id uuid, task text, key text, fingerprint text, lane text, tenant text,
    awaited boolean, dependency text, body bytea, envelope text, place bigint
) RETURNS bigint LANGUAGE plpgsql SET enable_seqscan = off AS $$
DECLARE
    new_job CONSTANT bigint := celery_guard_insert_due_1(
        public_id, task, key, fingerprint, lane, tenant, awaited, dependency, body, envelope
    );
BEGIN
    IF new_job IS NULL THEN
        RETURN NULL;
    END IF;
    DELETE FROM celery_guard_reservation AS kept WHERE kept.id = place;
    RETURN CASE WHEN FOUND THEN new_job ELSE -new_job END;
END
$$;
