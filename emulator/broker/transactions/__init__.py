"""The shell of transactions (docs/components/transactions.md)."""
