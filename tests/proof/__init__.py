"""The evidence: the package dies at every point, and its guards are taken out one by one."""
