"""The connections of clients, with one small function for each command."""
