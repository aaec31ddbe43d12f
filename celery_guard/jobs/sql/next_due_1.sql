-- Version 1 of the question when the first unsent job of each lane is due, as a function, which plans it
-- once a session: a relay asks four times a second, and planning it took longer. Never edited once released.
-- Arguments: its_lanes: a JSON array of names.
-- Returns: lane, due_in: microseconds from now, 0 or less for now. A lane without such a job has no row.
CREATE OR REPLACE FUNCTION celery_guard_next_due_1(its_lanes text)
RETURNS TABLE (lane text, due_in bigint) LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    SELECT asked.name, (extract(epoch FROM first.due_at - clock_timestamp()) * 1000000)::bigint
    FROM json_array_elements_text(its_lanes::json) AS asked (name)
    CROSS JOIN LATERAL (
        SELECT job.due_at FROM celery_guard_job AS job
        WHERE job.lane = asked.name AND job.sent_at IS NULL AND job.due_at IS NOT NULL
        -- sent_at is NULL in every row, but naming it lets the planner read the index in order.
        ORDER BY job.sent_at, job.due_at
        LIMIT 1
    ) AS first;
END
$$;
