"""Tests of all commands of Pulsar's pulsar-admin, and of all methods of its Java admin client, against a region."""
