"""Which session does an agent card name? (P2)."""

CAPSULE_EXTENSION = "https://docs.murmur.nexus/reference/agent-card/#murmur-capsule-v1"


def session_id_from_card(card: object) -> str | None:
    """Return the session id of the card's capsule extension; `None` when it names none.

    The first extension of that address decides. `card` is any decoded JSON value.
    """
    capabilities = card.get("capabilities") if isinstance(card, dict) else None
    extensions = capabilities.get("extensions") if isinstance(capabilities, dict) else None
    for extension in extensions if isinstance(extensions, list) else ():
        if isinstance(extension, dict) and extension.get("uri") == CAPSULE_EXTENSION:
            params = extension.get("params")
            session_id = params.get("sessionId") if isinstance(params, dict) else None
            return session_id if isinstance(session_id, str) else None
    return None
