"""Transactions: coordinators, their journals and keys; the transaction state of topics and subscriptions."""
