"""Transactions: coordinators, their journals and keys; what a topic and a subscription know of a transaction."""
