-- Version 1 of taking a place where all gates are known to have room, as a function: planned once a
-- session. Never edited once released: a change is a new version beside this one.
-- One call, one commit. A room is a number that only this takes from, so a gate is locked for no
-- longer than the call and its commit. Lanes before tenants, as whoever counts locks them by name.
-- Arguments: lane_scope, tenant_scope: the gates, NULL where there is none; kept: how many places of the
--            lane are left to those whose turn it is; step, slack: of the tenant's rate, in
--            seconds; holds: seconds that a count holds; lasts, turns, its_turn: seconds of a turn, how many
--            there are, and the request's; its_lane, its_tenant: whose place it is; hold: seconds it is kept;
--            patience: how long to wait for the lock of a gate ('10s').
-- Returns: the reservation's id; NULL when a gate is missing, has to be counted anew or is full.
-- Without scans of whole tables: a plan made while the table was empty is kept when it is full.
CREATE OR REPLACE FUNCTION celery_guard_take_1(
    lane_scope text, kept integer, tenant_scope text, step double precision, slack double precision,
    holds double precision, lasts double precision, turns integer, its_turn integer,
    its_lane text, its_tenant text, hold double precision, patience text
) RETURNS bigint LANGUAGE plpgsql SET enable_seqscan = off AS $$
DECLARE
    place bigint;
BEGIN
    PERFORM set_config('lock_timeout', patience, true),
        -- A crash of the server takes the caller's transaction with it: its place may go too.
        set_config('synchronous_commit', 'off', true);
    IF lane_scope IS NOT NULL THEN
        UPDATE celery_guard_gate AS gate
           SET room = gate.room - 1
         WHERE gate.scope = lane_scope
           AND gate.room > 0
           AND gate.counted_at > clock_timestamp() - holds * interval '1 second'
           AND (
               gate.room > kept
               OR floor(extract(epoch FROM clock_timestamp()) / lasts)::bigint % turns = its_turn
           );
        IF NOT FOUND THEN
            RETURN NULL;
        END IF;
    END IF;
    IF tenant_scope IS NOT NULL THEN
        UPDATE celery_guard_gate AS gate
           SET room = gate.room - 1,
               next_at = CASE WHEN step > 0 THEN
                   greatest(gate.next_at, clock_timestamp()) + step * interval '1 second'
               END
         WHERE gate.scope = tenant_scope
           AND gate.room > 0
           AND gate.counted_at > clock_timestamp() - holds * interval '1 second'
           AND (
               gate.next_at IS NULL
               OR gate.next_at <= clock_timestamp() + slack * interval '1 second'
           );
        IF NOT FOUND THEN
            -- Nobody has seen the lane's room go.
            UPDATE celery_guard_gate AS gate
               SET room = gate.room + 1
             WHERE gate.scope = lane_scope;
            RETURN NULL;
        END IF;
    END IF;
    INSERT INTO celery_guard_reservation (lane, tenant, until)
    VALUES (its_lane, its_tenant, clock_timestamp() + hold * interval '1 second')
    RETURNING id INTO place;
    RETURN place;
END
$$;
