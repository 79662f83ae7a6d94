"""Coordinators of transactions in the broker (docs/components/transactions.md)."""
