-- Version 1 of counting anew, in one call and one commit, where gates that had room have not been counted
-- for a while. Gates that are missing, full or new are left to whoever can say why nobody gets in.
-- Never edited once released: a change is a new version beside this one.
-- Arguments: lane_scope, tenant_scope: the gates, NULL where there is none; its_lane, its_tenant: what they
--            count; lane_most, tenant_most: how much they may hold, most_running: how many of the
--            tenant's jobs may run, NULL for no bound; slack: of the tenant's rate, in seconds; holds: seconds
--            that a count holds; horizon: seconds after which a due time does not count yet;
--            patience: how long to wait for the lock of a gate ('10s').
-- Returns: whether there is room at every gate, as counted, so that a place may be taken now.
-- Without scans of whole tables: a plan made while the table was empty is kept when it is full.
CREATE OR REPLACE FUNCTION celery_guard_recount_1(
    lane_scope text, its_lane text, lane_most integer,
    tenant_scope text, its_tenant text, tenant_most integer, most_running integer,
    slack double precision, holds double precision, horizon double precision, patience text
) RETURNS boolean LANGUAGE plpgsql SET enable_seqscan = off AS $$
DECLARE
    gate celery_guard_gate;
    moment timestamptz;
    expected integer := 0;
    known integer := 0;
    along boolean := false;
    held bigint;
BEGIN
    PERFORM set_config('lock_timeout', patience, true),
        set_config('synchronous_commit', 'off', true);
    -- In the order in which whoever counts locks them. What is counted below is a statement of its own,
    -- so it sees all that was let in before the locks were had.
    PERFORM 1 FROM celery_guard_gate AS one
      WHERE one.scope IN (lane_scope, tenant_scope) ORDER BY one.scope FOR UPDATE;
    moment := clock_timestamp();
    expected := (lane_scope IS NOT NULL)::integer + (tenant_scope IS NOT NULL)::integer;
    FOR gate IN SELECT * FROM celery_guard_gate AS one WHERE one.scope IN (lane_scope, tenant_scope)
    LOOP
        IF gate.counted_at IS NULL OR gate.room <= 0 THEN
            RETURN false;
        END IF;
        IF gate.scope = tenant_scope AND gate.next_at > moment + slack * interval '1 second' THEN
            RETURN false;
        END IF;
        known := known + 1;
        along := along OR gate.counted_at < moment - holds * interval '1 second';
    END LOOP;
    IF known < expected THEN
        RETURN false;
    END IF;
    -- Those that are half over are counted along, or each of them would bring a request here in turn.
    IF along THEN
        holds := holds / 2;
    END IF;
    FOR gate IN
        SELECT * FROM celery_guard_gate AS one
        WHERE one.scope IN (lane_scope, tenant_scope)
            AND one.counted_at < moment - holds * interval '1 second'
    LOOP
        held := 0;
        IF gate.scope = lane_scope AND lane_most IS NOT NULL THEN
            DELETE FROM celery_guard_reservation WHERE id IN (
                SELECT ended.id FROM celery_guard_reservation AS ended
                WHERE ended.lane = its_lane AND ended.until <= clock_timestamp()
                ORDER BY ended.id FOR UPDATE SKIP LOCKED
            );
            SELECT (
                SELECT count(*) FROM (
                    SELECT 1 AS one FROM celery_guard_job AS job
                    WHERE job.lane = its_lane AND job.sent_at IS NULL
                        AND job.due_at <= moment + horizon * interval '1 second' LIMIT lane_most
                ) AS unsent
            ) + (
                SELECT count(*) FROM (
                    SELECT 1 AS one FROM celery_guard_job AS job
                    WHERE job.lane = its_lane AND job.sent_at IS NOT NULL AND job.state = 'waiting'
                    LIMIT lane_most
                ) AS sent
            ) + (
                SELECT count(*) FROM celery_guard_reservation AS kept WHERE kept.lane = its_lane
            ) INTO held;
            gate.room := lane_most - least(held, lane_most);
        ELSIF gate.scope = tenant_scope AND (tenant_most IS NOT NULL OR most_running IS NOT NULL) THEN
            DELETE FROM celery_guard_reservation WHERE id IN (
                SELECT ended.id FROM celery_guard_reservation AS ended
                WHERE ended.tenant = its_tenant AND ended.until <= clock_timestamp()
                ORDER BY ended.id FOR UPDATE SKIP LOCKED
            );
            IF most_running IS NOT NULL AND most_running <= (
                SELECT count(*) FROM (
                    SELECT 1 AS one FROM celery_guard_job AS job
                    WHERE job.tenant = its_tenant AND job.tenant <> '' AND job.due_at IS NOT NULL
                        AND job.state = 'running' LIMIT most_running
                ) AS running
            ) THEN
                RETURN false;
            END IF;
            gate.room := 1000000000;
            IF tenant_most IS NOT NULL THEN
                SELECT (
                    SELECT count(*) FROM (
                        SELECT 1 AS one FROM celery_guard_job AS job
                        WHERE job.tenant = its_tenant AND job.tenant <> ''
                            AND job.due_at IS NOT NULL AND job.state = 'waiting'
                            AND job.due_at <= moment + horizon * interval '1 second'
                        LIMIT tenant_most
                    ) AS waiting
                ) + (
                    SELECT count(*) FROM celery_guard_reservation AS kept
                    WHERE kept.tenant = its_tenant
                ) INTO held;
                gate.room := tenant_most - least(held, tenant_most);
            END IF;
        ELSE
            gate.room := 1000000000;
        END IF;
        -- A full one stays as it is: the slower way counts it, and says which limit it was.
        IF gate.room <= 0 THEN
            RETURN false;
        END IF;
        UPDATE celery_guard_gate AS one
           SET room = gate.room, counted_at = clock_timestamp()
         WHERE one.scope = gate.scope;
    END LOOP;
    RETURN true;
END
$$;
