"""The admin API of a region, on its HTTP port."""
