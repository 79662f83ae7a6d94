"""All commands but SEND, MESSAGE, ACK, FLOW and receipts: one table of frozen values that encode and read themselves.

`COMMANDS` maps type numbers to classes; `spec` explains how a command is declared.
"""
