"""Exclusive access of producers to topics (PIP-68, PIP-440). Its contract: docs/components/access.md.

types.py        claimants, grants, decisions; the newest grant and its pending write
machine.py      the state machine, one per topic and region
wait_queue.py   producers that wait for exclusive access
"""
