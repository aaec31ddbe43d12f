"""The name by which a provider knows one side effect."""

from __future__ import annotations

import hashlib
import json
import uuid


def provider_key(
    app: str, task: str, key: str | None, public_id: uuid.UUID, name: str, item: str
) -> str:
    """64 hex digits that name one side effect of one business operation for its provider."""
    parts = (app, task, key or str(public_id), name, item)
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()
