"""Tampering that the verdict detects: small runs, and changes of their evidence as by a faulty region or an attacker.

A module per kind of evidence; `table` joins them and writes docs/reference/tampering.md.
"""
