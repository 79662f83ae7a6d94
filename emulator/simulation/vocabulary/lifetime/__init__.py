"""How long messages and topics stay."""
