-- How many jobs of a tenant wait, with the places kept for it, and how many run.
-- Arguments: tenant, latest due time that counts, most, tenant, tenant, most running
-- Returns: waiting and kept (exact below most), running (exact below its most).
SELECT
    (
        SELECT count(*) FROM (
            SELECT 1 AS one FROM celery_guard_job
            WHERE tenant = %s AND tenant <> '' AND due_at IS NOT NULL AND due_at <= %s
                AND state = 'waiting'
            LIMIT %s
        ) AS waiting
    ) + (
        SELECT count(*) FROM celery_guard_reservation WHERE tenant = %s
    ),
    (
        SELECT count(*) FROM (
            SELECT 1 AS one FROM celery_guard_job
            WHERE tenant = %s AND tenant <> '' AND due_at IS NOT NULL AND state = 'running'
            LIMIT %s
        ) AS running
    )
