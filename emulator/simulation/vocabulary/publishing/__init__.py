"""What programs publish: as what, and in what form."""
