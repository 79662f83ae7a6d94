"""Tests with real Pulsar clients: every test runs with each client, through a driver for it (docs/CLIENTS.md)."""
