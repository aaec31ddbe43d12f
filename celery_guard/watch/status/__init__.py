"""The status resource: what a job's owner may see of it, and may do about it.

In: a public id and a request. Out: one small document, as JSON or as a page, and a cancel. What can
go wrong: nobody has said who owns what (then nothing is shown to anybody); the job is unknown or
somebody else's (one and the same 404); the snapshot is old or a lane stands still (then no wait is
predicted, rather than a wrong one). Arguments, results, messages of errors and tenants never leave.
"""
