"""Django's Tasks framework on the ledger."""
