"""Tests with real Pulsar clients: one list, a driver for each client (docs/CLIENTS.md)."""
