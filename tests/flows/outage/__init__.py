"""A broker that is away for long: two services behind their limits, and their jobs that pile up."""
