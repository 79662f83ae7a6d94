"""The shell of transactions (docs/rooms/transactions.md)."""
