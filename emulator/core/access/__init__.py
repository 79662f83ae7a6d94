"""Exclusive access of producers to topics (PIP-68, PIP-440). Its contract: docs/components/access.md.

types.py        claimants, grants, decisions; the newest grant and its change
machine.py      the state machine, one per topic and region
wait_queue.py   producers that wait
"""
